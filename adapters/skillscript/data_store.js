// DataStore on bellhop.
import { Client } from "./client.js";

const NAME = "BellhopDataStore";

export class BellhopDataStore {
  #client;

  constructor(options) {
    this.#client = new Client(options, "data_store", NAME);
  }

  static staticCapabilities() {
    return {
      connector_type: "data_store",
      implementation: NAME,
      contract_version: "1.0.0",
      features: {
        supports_writes: true,
        supports_tag_filter: true,
        supports_semantic: false,
        supports_rerank: false,
        supports_thread_status_filter: true,
        supports_pinning: false,
        supports_decay_model: false,
      },
    };
  }

  async query(filters) {
    return this.#client.call("POST", "/v1/data/query", { body: filters });
  }

  async write(entry) {
    const { id, created_at } = await this.#client.call("POST", "/v1/data", { body: entry });
    return { id, created_at };
  }

  async get(id) {
    if (typeof id !== "string" || !/^[A-Za-z0-9]/.test(id)) return null;
    return (await this.#client.call("GET", `/v1/data/${encodeURIComponent(id)}`, { absent: [404] })) ?? null;
  }

  async manifest() {
    return this.#client.call("GET", "/v1/data:manifest");
  }
}
