SELECT date_trunc('hour', taken_at) AS hour, tube, count(*) AS deliveries,
       count(*) FILTER (WHERE outcome IN ('released', 'ttr', 'buried', 'dead')) AS failed,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY waited_us) / 1e6 AS wait_p99_s
FROM {{ ref('deliveries') }} GROUP BY ALL
