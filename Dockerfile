# Both long-running parts, in one image. Nothing at run time needs a shell, a package manager or a writable root, so the
# runtime base may be as small as Node.js and its libraries.
#
#   docker build -t postern .
#   docker run --read-only --user 10001 --ulimit core=0 -v ./config:/etc/postern:ro postern check -c /etc/postern/gateway.yaml
ARG BUILD_IMAGE=docker.io/library/node:24-bookworm-slim
ARG RUNTIME_IMAGE=docker.io/library/node:24-bookworm-slim

FROM ${BUILD_IMAGE} AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN ["npm", "ci", "--ignore-scripts"]
COPY tsconfig.json tsconfig.build.json ./
COPY src src
RUN ["npm", "run", "build"]
# Once more from the lock file, without what only building needs.
RUN ["npm", "ci", "--omit=dev", "--ignore-scripts"]

FROM ${RUNTIME_IMAGE}
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist
COPY LICENSE ./
ENV NODE_ENV=production
# A number, so that `runAsNonRoot` can be checked without the image's /etc/passwd.
USER 10001:10001
ENTRYPOINT ["node", "/app/dist/cli/main.js"]
CMD ["--help"]
