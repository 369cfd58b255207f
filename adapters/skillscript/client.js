// One HTTP call to bellhop, and what its errors become.
import { errors } from "./errors.js";

const TIMEOUT_MS = 30000;

/** On what was not the fault of the caller: {kind: network|timeout|http_status|malformed_response, status, answer}. */
export const FAULT = Symbol("fault");

export class Client {
  constructor({ url, key, namespace, timeout_ms = TIMEOUT_MS }, connector_type, implementation) {
    if (typeof url !== "string" || url === "") throw new Error(`${implementation}: \`url\` is required`);
    if (typeof key !== "string" || key === "") throw new Error(`${implementation}: \`key\` is required`);
    this.base = url.replace(/\/+$/, "");
    this.connector_type = connector_type;
    this.implementation = implementation;
    this.timeout_ms = timeout_ms;
    this.headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    if (namespace !== undefined) this.headers["x-bellhop-namespace"] = namespace;
  }

  /** The parsed answer; undefined when there is none, or on a status listed in `absent`. */
  async call(method, path, { body, absent = [], timeout_ms = this.timeout_ms } = {}) {
    const [response, text] = await this.#send(method, path, body, timeout_ms);
    const answer = text === "" ? undefined : this.#parse(text, response);
    if (response.ok) return answer;
    if (absent.includes(response.status) && answer?.class === null) return undefined;
    throw this.#error(response.status, answer ?? {});
  }

  async #send(method, path, body, timeout_ms) {
    try {
      const response = await fetch(this.base + path, {
        method,
        headers: this.headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.timeout(timeout_ms),
      });
      return [response, await response.text()];
    } catch (e) {
      if (e.name === "TimeoutError")
        throw this.#mark(new errors.TimeoutError(this.connector_type, this.implementation, timeout_ms), "timeout");
      throw this.#fault(`bellhop at ${this.base} does not answer: ${e.cause?.message ?? e.message}`, "network");
    }
  }

  #parse(text, response) {
    try {
      return JSON.parse(text);
    } catch {
      throw this.#fault(`what answers at ${this.base} is not bellhop (HTTP ${response.status})`, "malformed_response");
    }
  }

  #mark(error, kind, status = null, answer = {}) {
    Object.defineProperty(error, FAULT, { value: { kind, status, answer } });
    return error;
  }

  #fault(message, kind, status, answer) {
    return this.#mark(new errors.ConnectorError(message, this.connector_type, this.implementation), kind, status, answer);
  }

  #error(status, e) {
    const who = this.implementation;
    const message = e.error ?? `bellhop answered HTTP ${status}`;
    switch (e.class) {
      case "SkillNotFoundError":
        return new errors.SkillNotFoundError(e.skill_name, who);
      case "VersionNotFoundError":
        return new errors.VersionNotFoundError(e.skill_name, e.version, who);
      case "StorageConflictError":
        return new errors.StorageConflictError(e.skill_name, e.reason ?? message, who);
      case "ApprovalRejectedError":
        return new errors.ApprovalRejectedError(e.skill_name, e.reason ?? message, who);
      case "LintFailureError":
        return new errors.LintFailureError(e.diagnostics ?? [], who);
      case "QueryError":
        return new errors.QueryError(message, this.connector_type, who, e.mode);
      case "UnsupportedFilterError":
        return new errors.UnsupportedFilterError(e.unsupportedKeys, e.supportedKeys, e.substrate ?? who);
      case "TimeoutError":
        return new errors.TimeoutError(this.connector_type, who, e.timeout_ms);
      case "DeliveryFailedError":
        return this.#fault(message, e.cause_kind, status, e);
      default:
        return status === 400 ? new Error(message) : this.#fault(message, "http_status", status, e);
    }
  }
}
