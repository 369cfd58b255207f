// SkillStore on bellhop.
import { Client } from "./client.js";
import { errors } from "./errors.js";

const NAME = "BellhopSkillStore";
const ONE_OR_MORE = ["status", "tag"];
const PLAIN = ["type", "author", "since", "name_pattern", "limit", "offset"];

function query_string(filter) {
  const params = new URLSearchParams();
  for (const key of ONE_OR_MORE)
    for (const value of [filter[key] ?? []].flat()) params.append(key, String(value));
  for (const key of PLAIN) if (filter[key] !== undefined && filter[key] !== null) params.append(key, String(filter[key]));
  const text = params.toString();
  return text === "" ? "" : `?${text}`;
}

// A name that no URL path can carry is no skill's name either.
function path_of(name, refuse) {
  if (typeof name !== "string" || !/^[A-Za-z0-9]/.test(name)) throw refuse();
  return `/v1/skills/${encodeURIComponent(name)}`;
}

export class BellhopSkillStore {
  #client;

  constructor(options) {
    this.#client = new Client(options, "skill_store", NAME);
  }

  static staticCapabilities() {
    return {
      connector_type: "skill_store",
      implementation: NAME,
      contract_version: "1.0.0",
      features: {
        supports_writes: true,
        supports_versioning: true,
        supports_tag_filter: true,
        supports_audit_trail: true,
        supports_atomic_status_transitions: true,
      },
    };
  }

  #path(name) {
    return path_of(name, () => new errors.SkillNotFoundError(name, NAME));
  }

  async load(name, version) {
    const which = version === undefined ? "" : `?version=${encodeURIComponent(version)}`;
    return this.#client.call("GET", this.#path(name) + which);
  }

  async query(filter = {}) {
    if (Array.isArray(filter.status) && filter.status.length === 0) return [];
    return this.#client.call("GET", `/v1/skills${query_string(filter)}`);
  }

  async metadata(name) {
    return this.#client.call("GET", `${this.#path(name)}/metadata`);
  }

  async versions(name) {
    return this.#client.call("GET", `${this.#path(name)}/versions`);
  }

  async store(name, source, metadata) {
    const reason = "a name begins with a letter or digit and goes on with those, dots, dashes or underscores";
    const path = path_of(name, () => new errors.StorageConflictError(name, reason, NAME));
    return this.#client.call("PUT", path, { body: { source, metadata } });
  }

  async update_status(name, status) {
    return this.#client.call("PATCH", this.#path(name), { body: { status } });
  }

  async delete(name) {
    // The contract's delete asks nothing back and knows no dependents.
    const path = this.#path(name);
    await this.#client.call("DELETE", `${path}?confirm=${encodeURIComponent(name)}&force=true`);
  }

  async manifest() {
    return this.#client.call("GET", "/v1/skills:manifest");
  }

  async version() {
    return (await this.#client.call("GET", "/v1/skills:version")).version;
  }
}
