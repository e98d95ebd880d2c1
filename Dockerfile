# One image for API, worker and migrations; the command chooses. torch is a build for CPUs alone, which is far smaller.
# For GPUs: `--build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130`, or the index of another CUDA version that
# the driver supports; an empty TORCH_INDEX takes PyPI's torch, which is a CUDA build too.
# `--build-arg EXTRAS=demo` adds what optional parts need, by their names in pyproject.toml.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE} AS dependencies
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
RUN python -m venv --without-pip /opt/perennial
COPY pyproject.toml constraints.txt ./
COPY client/pyproject.toml client/
# torch first and without its dependencies: another index holds only some of them, in other versions.
# The second call installs what service and client need, which for a CUDA build includes the CUDA libraries.
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN pip --python /opt/perennial/bin/python install --no-deps --constraint constraints.txt \
        ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} torch torchvision \
    && python -c 'import sys, tomllib; \
            service, client = (tomllib.load(open(f"{folder}pyproject.toml", "rb"))["project"] for folder in ("", "client/")); \
            extras = [need for name in sys.argv[1:] for need in service["optional-dependencies"][name]]; \
            needs = [*service["dependencies"], *client["dependencies"], *extras]; \
            print(*(need for need in needs if not need.startswith("perennial-")), sep="\n")' ${EXTRAS} \
        > requirements.txt \
    && pip --python /opt/perennial/bin/python install --constraint constraints.txt --requirement requirements.txt

# The wheels of service and client, as `make dist` builds them.
# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE} AS wheels
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY constraints.txt ./
RUN pip install --constraint constraints.txt build setuptools zensical
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE NOTICE THIRD_PARTY_NOTICES.md alembic.ini ./
COPY CHANGELOG.md CONTRIBUTING.md SECURITY.md ./
COPY bench/README.md bench/
COPY docs docs
COPY client client
COPY perennial_service perennial_service
COPY migrations migrations
COPY tools tools
COPY core core
COPY worker worker
COPY api api
RUN python -m tools.release.distributions --wheels --out /wheels

# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="Perennial" \
      org.opencontainers.image.description="Keeps deployed image classifiers current" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/perennial/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PERENNIAL_HOST=0.0.0.0 \
    PERENNIAL_PORT=8000 \
    PERENNIAL_DATA_DIR=/var/lib/perennial
RUN groupadd --system --gid 10001 perennial \
    && useradd --system --uid 10001 --gid perennial --home-dir /var/lib/perennial --shell /usr/sbin/nologin perennial \
    && install --directory --owner perennial --group perennial --mode 0700 /var/lib/perennial
COPY --from=dependencies /opt/perennial /opt/perennial
# A layer of its own: a new version of the code leaves the large one as it is.
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    PIP_ROOT_USER_ACTION=ignore pip --python /opt/perennial/bin/python install --no-cache-dir --no-index --no-deps /wheels/*.whl
WORKDIR /app
COPY LICENSE NOTICE THIRD_PARTY_NOTICES.md ./
COPY deploy/health.py deploy/health.py
USER 10001:10001
VOLUME /var/lib/perennial
EXPOSE 8000
# A worker's container overrides this with `deploy/health.py worker`.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "deploy/health.py", "api"]
CMD ["uvicorn", "--factory", "perennial_service.asgi:create_app", "--host", "0.0.0.0", "--port", "8000", \
     "--http", "perennial_service.asgi:Connection", "--no-server-header"]
