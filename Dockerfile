# One image for API, worker and migrations; the command chooses. torch is a build for CPUs alone, which is far smaller.
# For GPUs: `--build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130`, or the index of another CUDA version that
# the driver supports; an empty TORCH_INDEX takes PyPI's torch, which is a CUDA build too.
# `--build-arg EXTRAS=demo` adds what optional parts need, by their names in pyproject.toml.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE} AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN python -m venv --without-pip /opt/perennial
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY client client
# torch first and without its dependencies: another index holds only some of them, in other versions.
# The second call installs what both need, which for a CUDA build includes the CUDA libraries, and the command
# `perennial`. The third one only names what the service adds to it: its code is copied below.
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN pip --python /opt/perennial/bin/python install --no-deps --constraint constraints.txt \
        ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} torch torchvision \
    && python -c 'import sys, tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
            extras = [need for name in sys.argv[1:] for need in project["optional-dependencies"][name]]; \
            print(*project["dependencies"], *extras, sep="\n")' ${EXTRAS} \
        > requirements.txt \
    && pip --python /opt/perennial/bin/python install --constraint constraints.txt --requirement requirements.txt ./client \
    && pip --python /opt/perennial/bin/python install --no-deps .

# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="Perennial" \
      org.opencontainers.image.description="Keeps deployed image classifiers current" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/perennial/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/app \
    PERENNIAL_HOST=0.0.0.0 \
    PERENNIAL_PORT=8000 \
    PERENNIAL_DATA_DIR=/var/lib/perennial
RUN groupadd --system --gid 10001 perennial \
    && useradd --system --uid 10001 --gid perennial --home-dir /var/lib/perennial --shell /usr/sbin/nologin perennial \
    && install --directory --owner perennial --group perennial --mode 0700 /var/lib/perennial
COPY --from=build /opt/perennial /opt/perennial
WORKDIR /app
COPY LICENSE NOTICE alembic.ini ./
COPY migrations migrations
COPY core core
COPY api api
COPY worker worker
COPY deploy/health.py deploy/health.py
COPY tools/__init__.py tools/backup.py tools/commands.py tools/housekeeping.py tools/
USER 10001:10001
VOLUME /var/lib/perennial
EXPOSE 8000
# A worker's container overrides this with `deploy/health.py worker`.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "deploy/health.py", "api"]
CMD ["uvicorn", "--factory", "api.app:create_app", "--host", "0.0.0.0", "--port", "8000", \
     "--http", "api.server.connection:Connection", "--no-server-header"]
