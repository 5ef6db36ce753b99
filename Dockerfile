# syntax=docker/dockerfile:1
# The coordinator and nothing else: no shell, no package manager, not root.

FROM rust:1.95-slim-bookworm AS build
# Writes what the program is made of into the program, so that a scanner can tell what is in the image.
RUN cargo install --locked --version 0.7.7 cargo-auditable
WORKDIR /build
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo auditable build --locked --release --package c3po-coordinator \
    && cp target/release/c3po-coordinator /c3po-coordinator \
    && mkdir /data

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /c3po-coordinator /usr/local/bin/c3po-coordinator
# For the embedded store, where no Redis is named. A volume that is mounted here takes over the owner.
COPY --from=build --chown=nonroot:nonroot /data /data
VOLUME /data
# A port that the network reaches: the coordinator refuses to start without C3PO_TOKEN.
ENV C3PO_LISTEN=0.0.0.0:8420 \
    C3PO_DATA_DIR=/data
EXPOSE 8420
# SIGTERM drains within 5 s, half of what Docker waits.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
    CMD ["/usr/local/bin/c3po-coordinator", "health"]
ENTRYPOINT ["/usr/local/bin/c3po-coordinator"]
