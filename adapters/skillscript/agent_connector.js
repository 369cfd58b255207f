// AgentConnector on bellhop.
import { Client, FAULT } from "./client.js";
import { DeliveryFailedError, NotImplementedError } from "./delivery_errors.js";

const NAME = "BellhopAgentConnector";
const AGENTS_TTL_MS = 5000;
const REQUEST_MS = 30000; // what the server takes where a request names no time
const SPARE_MS = 5000; // beyond a request's own time: the server says first that it is up

export class BellhopAgentConnector {
  #client;
  #ttl_ms;
  #agents = [];
  #asked_at = -Infinity;
  #asking;

  constructor(options) {
    this.#client = new Client(options, "agent_connector", NAME);
    this.#ttl_ms = options.agents_ttl_ms ?? AGENTS_TTL_MS;
  }

  static staticCapabilities() {
    return {
      connector_type: "agent_connector",
      implementation: NAME,
      contract_version: "1.0.0",
      features: {
        deliver: true,
        wake: true,
        list_agents: true,
        agent_status: true,
        health_check: true,
        request_response: true,
      },
    };
  }

  /** Asked for on every notify: what was known a moment ago is good enough, and a server that is away changes nothing. */
  async list_agents() {
    if (Date.now() - this.#asked_at >= this.#ttl_ms) await this.#ask_agents();
    return this.#agents.map((a) => ({ ...a }));
  }

  async deliver(agent_id, payload) {
    return this.#post(agent_id, "deliver", payload);
  }

  async wake(agent_id, opts) {
    return this.#post(agent_id, "wake", opts ?? {});
  }

  async health_check() {
    try {
      return Array.isArray(await this.#client.call("GET", "/v1/agents"));
    } catch {
      return false;
    }
  }

  async request_response(agent_id, payload, opts) {
    const timeout_ms = opts?.timeout_ms;
    return this.#post(agent_id, "request", { ...payload, timeout_ms }, (timeout_ms ?? REQUEST_MS) + SPARE_MS);
  }

  async agent_status(agent_id) {
    return (await this.#call("GET", agent_id, "status")).status;
  }

  async #ask_agents() {
    this.#asking ??= this.#client
      .call("GET", "/v1/agents")
      .then((agents) => {
        if (Array.isArray(agents)) this.#agents = agents;
      })
      .catch(() => {}) // a throw would drop this connector without a word
      .finally(() => {
        this.#asked_at = Date.now();
        this.#asking = undefined;
      });
    return this.#asking;
  }

  async #post(agent_id, verb, body, timeout_ms) {
    return this.#call("POST", agent_id, verb, body, timeout_ms);
  }

  async #call(method, agent_id, verb, body, timeout_ms) {
    if (typeof agent_id !== "string" || agent_id === "")
      throw new DeliveryFailedError(String(agent_id), "client_validation", null, "no such agent", NAME);
    try {
      return await this.#client.call(method, `/v1/agents/${encodeURIComponent(agent_id)}/${verb}`, { body, timeout_ms });
    } catch (e) {
      throw this.#error(agent_id, verb, e);
    }
  }

  #error(agent_id, verb, e) {
    const fault = e[FAULT];
    if (fault === undefined) return e;
    const { kind, status, answer } = fault;
    if (kind === "timeout" && verb === "request") return e; // the contract's TimeoutError
    if (answer.class === "NotImplementedError") return new NotImplementedError(e.message, NAME);
    const cause = answer.cause_kind ?? kind;
    const http_status = answer.class === "DeliveryFailedError" ? (answer.http_status ?? null) : status;
    return new DeliveryFailedError(agent_id, cause, http_status, e.message, NAME);
  }
}
