/** Where the server is and who asks: a key from `bellhop token agent`. */
export interface BellhopOptions {
  url: string;
  key: string;
  /** A store of its own inside the key's tenant. */
  namespace?: string;
  /** How long one call may take; 30000. */
  timeout_ms?: number;
}

export interface StaticCapabilities<Kind extends string> {
  connector_type: Kind;
  implementation: string;
  contract_version: string;
  features: Record<string, boolean>;
}

export interface ManifestInfo {
  capabilities_version: string;
  manifest: { kind: string; [key: string]: unknown };
}

export type SkillStatus = "Draft" | "Approved" | "Disabled";

export interface SkillMeta {
  name: string;
  version: string;
  content_hash: string;
  status: SkillStatus;
  created_at: number;
  updated_at: number;
  description?: string;
  tags?: string[];
  vars?: string[];
  returns?: string[];
  requires?: string[];
  triggers?: Array<{ source: string; name: string; agent_id?: string }>;
  outputs?: string[];
  type?: "procedural" | "data";
  status_changed_at?: number;
  author?: string;
  metadata_bag?: Record<string, unknown>;
}

export interface SkillSource {
  name: string;
  version: string;
  content_hash: string;
  source: string;
  metadata: SkillMeta;
}

export interface VersionInfo {
  name: string;
  version: string;
  content_hash: string;
  status: SkillStatus;
  previous_status?: SkillStatus;
  changed_at: number;
  changed_by?: string;
}

export interface SkillFilter {
  status?: SkillStatus | SkillStatus[];
  type?: "procedural" | "data";
  tag?: string | string[];
  author?: string;
  since?: number;
  name_pattern?: string;
  limit?: number;
  offset?: number;
  [key: string]: unknown;
}

export declare class BellhopSkillStore {
  constructor(options: BellhopOptions);
  static staticCapabilities(): StaticCapabilities<"skill_store">;
  load(name: string, version?: string): Promise<SkillSource>;
  query(filter?: SkillFilter): Promise<SkillMeta[]>;
  metadata(name: string): Promise<SkillMeta>;
  versions(name: string): Promise<VersionInfo[]>;
  store(name: string, source: string, metadata?: Partial<SkillMeta>): Promise<VersionInfo>;
  update_status(name: string, status: SkillStatus): Promise<VersionInfo>;
  delete(name: string): Promise<void>;
  manifest(): Promise<ManifestInfo>;
  version(): Promise<string>;
}

export interface PortableData {
  id: string;
  summary: string;
  detail?: string;
  score?: number;
  thread_status?: string;
  pinned?: boolean;
  confidence?: number;
  domain_tags?: string[];
  payload_type?: string;
  knowledge_type?: string;
  recipients?: string[];
  expires_at?: number;
  created_at?: number;
  agent_id?: string;
  vault?: string;
  metadata?: Record<string, unknown>;
}

export interface DataWrite {
  content: string;
  tags?: string[];
  recipients?: string[];
  /** Unix seconds; null: for ever. */
  expires_at?: number | null;
  metadata?: Record<string, unknown>;
}

export interface QueryFilters {
  query: string;
  limit: number;
  mode: "fts" | string;
  permissive_filters?: boolean;
  [key: string]: unknown;
}

export declare class BellhopDataStore {
  constructor(options: BellhopOptions);
  static staticCapabilities(): StaticCapabilities<"data_store">;
  query(filters: QueryFilters): Promise<PortableData[]>;
  write(entry: DataWrite): Promise<{ id: string; created_at: number }>;
  get(id: string): Promise<PortableData | null>;
  manifest(): Promise<ManifestInfo>;
}

export type TriggerKind = "cron" | "event" | "webhook" | "agent" | "cli" | "dashboard" | "inline";

export interface DeliveryMeta {
  dispatch_id: string;
  sent_at: number;
  origin: { skill_name: string; entry_skill_name?: string; trigger_kind: TriggerKind; caller_agent_id?: string };
  event_type?: string;
  correlation_id?: string;
}

export type DeliveryPayload =
  | { kind: "augment"; content: string; meta: DeliveryMeta }
  | { kind: "template"; prompt: string; meta: DeliveryMeta };

export interface AgentDescriptor {
  agent_id: string;
  agent_name?: string;
  capabilities?: Array<"deliver" | "wake" | "augment" | "template">;
}

export interface DeliveryReceipt {
  delivered_at: number;
  delivery_id?: string;
  session_id?: string;
  delivery_skipped?: boolean;
  warnings?: string[];
}

export interface WakeOpts {
  context?: string;
  when?: "immediate" | number;
  session_id?: string;
}

export interface WakeReceipt {
  woken_at: number;
  woken: boolean;
  session_id?: string;
  warnings?: string[];
}

export interface Response {
  correlation_id: string;
  content: string;
  sent_at: number;
  agent_id: string;
  warnings?: string[];
}

export declare class BellhopAgentConnector {
  constructor(options: BellhopOptions & { agents_ttl_ms?: number });
  static staticCapabilities(): StaticCapabilities<"agent_connector">;
  list_agents(): Promise<AgentDescriptor[]>;
  deliver(agent_id: string, payload: DeliveryPayload): Promise<DeliveryReceipt>;
  wake(agent_id: string, opts?: WakeOpts): Promise<WakeReceipt>;
  health_check(): Promise<boolean>;
  request_response(agent_id: string, payload: DeliveryPayload, opts: { timeout_ms: number }): Promise<Response>;
  agent_status(agent_id: string): Promise<"active" | "idle" | "asleep" | "unknown">;
}

/** A delivery, wake or request that did not happen. */
export declare class DeliveryFailedError extends Error {
  agent_id: string;
  cause_kind: "network" | "timeout" | "http_status" | "malformed_response" | "client_validation";
  http_status: number | null;
}

/** The agent's substrate cannot answer requests. */
export declare class NotImplementedError extends Error {}
