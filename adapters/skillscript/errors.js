// The runtime's own error classes, taken from the program this runs in: callers ask with `instanceof`.
// Where no runtime is installed, classes of the same names and fields stand in.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

class ConnectorError extends Error {
  constructor(message, connector_type, implementation) {
    super(message);
    this.name = "ConnectorError";
    this.connector_type = connector_type;
    this.implementation = implementation;
  }
}

class SkillNotFoundError extends ConnectorError {
  constructor(skill_name, implementation) {
    super(`Skill not found: '${skill_name}'`, "skill_store", implementation);
    this.name = "SkillNotFoundError";
    this.skill_name = skill_name;
  }
}

class VersionNotFoundError extends ConnectorError {
  constructor(skill_name, version, implementation) {
    super(`Version not found: '${version}' of '${skill_name}'`, "skill_store", implementation);
    this.name = "VersionNotFoundError";
    this.skill_name = skill_name;
    this.version = version;
  }
}

class StorageConflictError extends ConnectorError {
  constructor(skill_name, reason, implementation) {
    super(`'${skill_name}' was not stored: ${reason}`, "skill_store", implementation);
    this.name = "StorageConflictError";
    this.skill_name = skill_name;
    this.reason = reason;
  }
}

class ApprovalRejectedError extends ConnectorError {
  constructor(skill_name, reason, implementation) {
    super(`'${skill_name}' is not approved: ${reason}`, "skill_store", implementation);
    this.name = "ApprovalRejectedError";
    this.skill_name = skill_name;
    this.reason = reason;
  }
}

class LintFailureError extends ConnectorError {
  constructor(diagnostics, implementation) {
    super(`Lint failed: ${diagnostics.map((d) => d.message).join("; ")}`, "skill_store", implementation);
    this.name = "LintFailureError";
    this.diagnostics = diagnostics;
  }
}

class QueryError extends ConnectorError {
  constructor(message, connector_type, implementation, mode) {
    super(message, connector_type, implementation);
    this.name = "QueryError";
    this.mode = mode;
  }
}

class TimeoutError extends ConnectorError {
  constructor(connector_type, implementation, timeout_ms) {
    super(`No answer within ${timeout_ms} ms`, connector_type, implementation);
    this.name = "TimeoutError";
    this.timeout_ms = timeout_ms;
  }
}

class OpError extends Error {
  constructor(message, opKind, remediation, target, innerCause) {
    super(message);
    this.name = "OpError";
    this.opKind = opKind;
    this.remediation = remediation;
    this.target = target;
    this.innerCause = innerCause;
  }
}

class UnsupportedFilterError extends OpError {
  constructor(unsupportedKeys, supportedKeys, substrate, target) {
    super(
      `${substrate} has no filter ${unsupportedKeys.join(", ")}; it has: ${supportedKeys.join(", ") || "none"}`,
      "$",
      "Leave the filter out, or pass permissive_filters: true.",
      target,
    );
    this.name = "UnsupportedFilterError";
    this.unsupportedKeys = unsupportedKeys;
    this.supportedKeys = supportedKeys;
    this.substrate = substrate;
  }
}

const stand_ins = {
  ConnectorError,
  SkillNotFoundError,
  VersionNotFoundError,
  StorageConflictError,
  ApprovalRejectedError,
  LintFailureError,
  QueryError,
  TimeoutError,
  OpError,
  UnsupportedFilterError,
};

// The errors module of the runtime that `from` (a file or folder) would import; undefined: none.
async function runtime_errors(from) {
  try {
    const manifest = createRequire(from).resolve("skillscript-runtime/package.json");
    const entry = JSON.parse(readFileSync(manifest, "utf8")).exports["./errors"];
    const file = typeof entry === "string" ? entry : entry.import;
    return await import(pathToFileURL(join(dirname(manifest), file)).href);
  } catch {
    return undefined;
  }
}

async function find_errors() {
  const places = [import.meta.url, process.argv[1] && pathToFileURL(process.argv[1]), pathToFileURL(join(process.cwd(), "x"))];
  for (const place of places) {
    const found = place && (await runtime_errors(place));
    if (found?.ConnectorError) return found;
  }
  return stand_ins;
}

/** The classes everything here throws. */
export const errors = await find_errors();
