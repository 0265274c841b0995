# The image of broker, bookie and the client commands: `docker build -t magnetar .`
#
# Three stages: the first installs the pins with their hashes, the second cuts from the base image what a running
# broker never reads, the third is what is left, in one layer and under a user of its own (10000, group 0, as
# Pulsar's images have it, so that it also runs under an arbitrary user id of group 0).
#
# The base must have `python` 3.11 or newer; any Debian-like image will do: --build-arg BASE=...
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS install
WORKDIR /build
# The compiler is for hdrhistogram, which has no wheel for Linux on ARM; this stage is thrown away.
RUN apt-get -q update && apt-get -q install -y --no-install-recommends binutils gcc libc6-dev
COPY constraints.txt pyproject.toml README.md ./
RUN sed '/^# development/,$d' constraints.txt >runtime.txt \
    && python -m venv /opt/magnetar \
    && /opt/magnetar/bin/pip --disable-pip-version-check --no-cache-dir install -q --require-hashes -r runtime.txt
COPY protocol protocol
COPY foundation foundation
COPY bookkeeper bookkeeper
COPY entry_cache entry_cache
COPY broker broker
COPY bookie_stub bookie_stub
COPY magnetar magnetar
COPY docs/man docs/man
RUN /opt/magnetar/bin/pip --disable-pip-version-check --no-cache-dir install -q --no-deps --no-build-isolation . \
    && /opt/magnetar/bin/pip uninstall -q -y setuptools pip \
    && find /opt/magnetar \( -name tests -o -name test \) -type d -prune -exec rm -rf {} + \
    && find /opt/magnetar \( -name '*.c' -o -name '*.h' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pyi' \) -delete \
    && find /opt/magnetar -name '*.so' -exec strip --strip-unneeded {} + \
    && /opt/magnetar/bin/python -c 'import aiohttp, bcrypt, crc32c, cryptography.x509, google.protobuf.message, hdrh.histogram, joserfc.jwt, kazoo.client, passlib.apache, pulsar, re2, rocksdict, uvloop'

FROM ${BASE} AS trim
COPY --from=install /opt/magnetar /opt/magnetar
COPY docker/trim /tmp/trim
RUN sh /tmp/trim && rm /tmp/trim
COPY docker/bin /pulsar/bin
COPY conf/broker.conf conf/standalone.conf conf/bookkeeper.conf conf/client.conf /pulsar/conf/
# A container has addresses of its own, which others reach only through a published port or a network that they share.
# On the loopback, the default elsewhere, nobody could reach them at all.
RUN sed -i 's/^bindAddress=.*/bindAddress=0.0.0.0/' /pulsar/conf/*.conf \
    && chmod 0755 /pulsar/bin/* \
    && ln -s /opt/magnetar/bin/magnetar /usr/local/bin/magnetar \
    && echo 'pulsar:x:10000:0:pulsar:/pulsar:/bin/sh' >>/etc/passwd \
    && mkdir -p /pulsar/data /pulsar/logs \
    && chown -R 10000:0 /pulsar \
    && chmod -R g=u /pulsar

FROM scratch
COPY --from=trim / /
ENV PATH=/opt/magnetar/bin:/pulsar/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /pulsar
USER 10000:0
EXPOSE 6650 8080 3181 8000
STOPSIGNAL SIGTERM
# The first check comes after one interval and waits for the port, so a start is reported at once; after a good check
# the next one waits 4 s before it asks. All releases of Docker build and obey this; --start-interval needs Docker 25.
HEALTHCHECK --interval=200ms --timeout=10s --start-period=20s --retries=15 \
    CMD ["healthcheck", "--steady", "4"]
CMD ["bin/pulsar", "standalone"]
