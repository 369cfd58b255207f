// Two errors that the runtime has no class for: callers know them by their names.
import { errors } from "./errors.js";

export class DeliveryFailedError extends errors.ConnectorError {
  constructor(agent_id, cause_kind, http_status, message, implementation) {
    super(`'${agent_id}' was not reached: ${message}`, "agent_connector", implementation);
    this.name = "DeliveryFailedError";
    this.agent_id = agent_id;
    this.cause_kind = cause_kind;
    this.http_status = http_status;
  }
}

export class NotImplementedError extends errors.ConnectorError {
  constructor(message, implementation) {
    super(message, "agent_connector", implementation);
    this.name = "NotImplementedError";
  }
}
