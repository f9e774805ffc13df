# Airflow with bigmc in an environment of its own beside it: the DAG calls the program that BIGMC names.
FROM apache/airflow:3.1.0-python3.11
COPY --chown=airflow . /tmp/source
USER root
RUN mkdir -p /opt/bigmc && chown airflow /opt/bigmc
USER airflow
RUN python -m venv /opt/bigmc && /opt/bigmc/bin/pip install --no-cache-dir '/tmp/source[s3]' && /opt/bigmc/bin/bigmc warm
