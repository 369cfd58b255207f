// What a Skillscript runtime takes from a bellhop server. All behaviour is in the server; these classes
// name its calls and throw its errors again as the runtime's own.
export { BellhopAgentConnector } from "./agent_connector.js";
export { BellhopDataStore } from "./data_store.js";
export { DeliveryFailedError, NotImplementedError } from "./delivery_errors.js";
export { BellhopSkillStore } from "./skill_store.js";
