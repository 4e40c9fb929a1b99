SELECT *, make_timestamp(put_us) AS put_at FROM ({{ of_history('tasks') }})
