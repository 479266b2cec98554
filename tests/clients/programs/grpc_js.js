// @grpc/grpc-js with our file of the protocol: unary calls, a stream, a deadline.
"use strict";
const assert = require("node:assert");
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const WAIT_MS_MAX = 60_000;
const [address, protos] = process.argv.slice(2);
const file = path.join(protos, "grpc_service.proto");
const options = { keepCase: true, longs: Number, enums: String, defaults: true, includeDirs: [protos] };
const api = grpc.loadPackageDefinition(loader.loadSync(file, options)).inference;
const client = new api.GRPCInferenceService(address, grpc.credentials.createInsecure());

function call(method, request, more = {}) {
  return new Promise((resolve, reject) =>
    client[method](request, more, (error, answer) => (error ? reject(error) : resolve(answer))));
}

function bytes(values, Kind) {
  return Buffer.from(new Kind(values).buffer);
}

function pair(model, shape, values) {
  const inputs = ["A", "B"].map((name) => ({ name, datatype: "FP32", shape }));
  const data = bytes(values, Float32Array);
  return { model_name: model, inputs, raw_input_contents: [data, data] };
}

async function wait() {
  assert.deepStrictEqual(await call("ModelReady", { name: "sum" }), { ready: false });
  console.log("waiting");
  const deadline = Date.now() + WAIT_MS_MAX;
  while (!(await call("ModelReady", { name: "sum" })).ready) {
    assert(Date.now() < deadline, "not ready in time");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function numbers() {
  return new Promise((resolve, reject) => {
    const stream = client.ModelStreamInfer();
    const seen = [];
    stream.on("data", (answer) => {
      if (answer.error_message) reject(new Error(answer.error_message));
      seen.push(answer.infer_response.raw_output_contents[0].readInt32LE(0));
      if (seen.length === 3) stream.end();
    });
    stream.on("end", () => resolve(seen));
    stream.on("error", reject);
    const input = { name: "N", datatype: "INT32", shape: [1] };
    stream.write({ model_name: "count", inputs: [input], raw_input_contents: [bytes([3], Int32Array)] });
  });
}

async function refused(promise, code, text) {
  await assert.rejects(promise, (error) => {
    assert.strictEqual(error.code, code, error.message);
    assert(error.details.includes(text), error.details);
    return true;
  });
}

async function main() {
  assert((await call("ServerLive", {})).live);
  assert((await call("ServerReady", {})).ready);
  await wait();
  const metadata = await call("ModelMetadata", { name: "sum" });
  assert.deepStrictEqual(metadata.inputs.map((each) => each.name), ["A", "B"]);
  const asked = Array.from({ length: 200 }, (_, i) => call("ModelInfer", pair("sum", [1, 2], [i, 1])));
  (await Promise.all(asked)).forEach((answer, i) =>
    assert.deepStrictEqual(answer.raw_output_contents[0], bytes([2 * i, 2], Float32Array)));
  assert.deepStrictEqual(await numbers(), [0, 1, 2]);
  const unknown = "Request for unknown model: 'nobody' is not found";
  await refused(call("ModelInfer", pair("nobody", [1, 2], [1, 2])), grpc.status.NOT_FOUND, unknown);
  await refused(call("ModelInfer", pair("sum", [1, 3], [1, 2, 3])), grpc.status.INVALID_ARGUMENT, "unexpected shape");
  client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
