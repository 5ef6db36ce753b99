# The coordinator, and the program that it ships to hosts: no shell, no package manager, not root.

FROM rust:1.95-slim-bookworm AS build
# Writes the list of crates into each program, so that a scanner finds them in the image. Its own speed is no matter.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo install --locked --debug --version 0.7.7 cargo-auditable
WORKDIR /build
COPY . .
# Dependencies are compiled once: they stay in the cache of the folder `target`. The sources are newer than what lies
# there, also if they are from an older archive. The C library becomes a part of both programs: hosts that fetch `c3po`
# from here may have an older one, or none. With an explicit --target that is not done to what runs during the build.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,id=c3po-target,target=/build/target \
    touch */src/*.rs \
    && system=$(rustc -vV | sed -n 's/^host: //p') \
    && RUSTFLAGS='-Ctarget-feature=+crt-static' cargo auditable build --locked --release --target "$system" \
        --package c3po-coordinator --package c3po \
    && cp "target/$system/release/c3po-coordinator" "target/$system/release/c3po" / \
    && mkdir /data

FROM gcr.io/distroless/static-debian12:nonroot
# Beside the coordinator, what it ships to hosts (/join.sh).
COPY --from=build /c3po-coordinator /c3po /usr/local/bin/
# For the embedded store, where no Redis is named. A volume that is mounted here takes over the owner.
COPY --from=build --chown=nonroot:nonroot /data /data
VOLUME /data
# A port that the network reaches: TLS and keys are demanded from the first start.
ENV C3PO_LISTEN=0.0.0.0:8420 \
    C3PO_DATA_DIR=/data
EXPOSE 8420
# SIGTERM drains within 5 s, half of what Docker waits.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
    CMD ["/usr/local/bin/c3po-coordinator", "health"]
ENTRYPOINT ["/usr/local/bin/c3po-coordinator"]
