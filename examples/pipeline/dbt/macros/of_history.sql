{# A tube's folder is named after it, escaped; a name too long for that stands in the file. #}
{% macro of_history(name) %}
  SELECT * EXCLUDE (filename)
    REPLACE (coalesce(tube, url_decode(regexp_extract(filename, '/tube=([^/]*)/', 1))) AS tube)
  FROM (SELECT NULL::VARCHAR AS tube WHERE false UNION ALL BY NAME
        FROM read_parquet('{{ var("history") }}/*{{ name }}/run=*/**/*.parquet',
                          union_by_name = true, filename = true, hive_partitioning = false))
{% endmacro %}
