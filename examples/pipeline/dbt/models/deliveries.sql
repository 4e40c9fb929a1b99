SELECT *, make_timestamp(taken_us) AS taken_at FROM ({{ of_history('deliveries') }})
