/* wire_lists.h - the fields, frames, errors and limits of the relay's wire as data.
 *
 * test_contract.c compares the writers (event.c, frame.c, descriptor.c) with these lists, and
 * test_contract_doc.c compares docs/contract.md.  The writers are faster by hand.
 *
 * Every list ends with an entry whose name is NULL. */
#pragma once
#include "core/contract.h"
#include "core/frame.h"
#include "core/token.h"

struct contract_field {
    const char *name;
    bool required;    /* written: always present; read: without it the object is invalid */
    const char *type; /* "string", "string or null", "int", "bool", "string[]", "object", ... */
};

struct contract_frame {
    const char *type;
    bool to_gateway;                     /* else: from the gateway */
    const struct contract_field *fields; /* beside `type` */
};

struct contract_error {
    const char *prefix; /* of the text in result.error */
    const char *effect; /* one word: the gateway's reaction */
};

struct contract_limit {
    const char *name; /* "window", "pack_bytes", ... */
    int64_t value;
};

#define ALWAYS true
#define MAYBE false

/* A gateway requires the first nine. */
static const struct contract_field contract_descriptor_fields[] = {
    {"contract_version", ALWAYS, "int"},
    {"platform", ALWAYS, "string"},
    {"label", ALWAYS, "string"},
    {"max_message_length", ALWAYS, "int"},
    {"supports_draft_streaming", ALWAYS, "bool"},
    {"supports_edit", ALWAYS, "bool"},
    {"supports_threads", ALWAYS, "bool"},
    {"markdown_dialect", ALWAYS, "string"},
    {"len_unit", ALWAYS, "string"},
    {"emoji", MAYBE, "string"},
    {"platform_hint", MAYBE, "string"},
    {"pii_safe", MAYBE, "bool"},
    {"supports_context", MAYBE, "bool"},
    {"supported_ops", MAYBE, "string[]"},
    {NULL},
};

static const struct contract_field contract_event_fields[] = {
    {"text", ALWAYS, "string"},
    {"message_type", ALWAYS, "string"},
    {"message_id", ALWAYS, "string or null"},
    {"reply_to_message_id", ALWAYS, "string or null"},
    {"media_urls", ALWAYS, "string[]"},
    {"media_types", MAYBE, "string[]"},
    {"media", MAYBE, "object[]"},
    {"message_ids", MAYBE, "string[]"},
    {"message_parts", MAYBE, "object[]"},
    {"source", ALWAYS, "object"},
    {"reply_to", MAYBE, "object"},
    {"prompt_response", MAYBE, "object"},
    {"context", MAYBE, "object[]"},
    {"context_error", MAYBE, "bool"},
    {"bot_id", MAYBE, "string"},
    {"dispatch", MAYBE, "object"},
    {"traceparent", MAYBE, "string"},
    {NULL},
};

static const struct contract_field contract_source_fields[] = {
    {"platform", ALWAYS, "string"},
    {"chat_id", ALWAYS, "string"},
    {"chat_type", ALWAYS, "string"},
    {"chat_name", ALWAYS, "string or null"},
    {"user_id", ALWAYS, "string or null"},
    {"user_name", ALWAYS, "string or null"},
    {"thread_id", ALWAYS, "string or null"},
    {"chat_topic", ALWAYS, "string or null"},
    {"user_id_alt", MAYBE, "string"},
    {"chat_id_alt", MAYBE, "string"},
    {"guild_id", MAYBE, "string"},
    {"scope_id", MAYBE, "string"},
    {"parent_chat_id", MAYBE, "string"},
    {"message_id", MAYBE, "string"},
    {"user_display_name", MAYBE, "string"},
    {"user_handle", MAYBE, "string"},
    {"prospective_thread_id", MAYBE, "string"},
    {"auto_thread_created", MAYBE, "bool"},
    {"auto_thread_initial_name", MAYBE, "string"},
    {NULL},
};

static const struct contract_field contract_context_fields[] = {
    {"text", ALWAYS, "string"},
    {"message_id", ALWAYS, "string or null"},
    {"source", ALWAYS, "object"},
    {NULL},
};

static const struct contract_field contract_said_source_fields[] = {
    {"platform", ALWAYS, "string"},          {"chat_id", ALWAYS, "string"},
    {"chat_type", ALWAYS, "string"},         {"user_id", ALWAYS, "string or null"},
    {"user_name", ALWAYS, "string or null"}, {NULL},
};

static const struct contract_field contract_reply_to_fields[] = {
    {"is_own", ALWAYS, "bool"},
    {"text", MAYBE, "string"},
    {"author", MAYBE, "string"},
    {NULL},
};

static const struct contract_field contract_prompt_response_fields[] = {
    {"prompt_id", ALWAYS, "string"},
    {"option_id", ALWAYS, "string"},
    {"label", MAYBE, "string"},
    {"prompt_message_id", MAYBE, "string"},
    {NULL},
};

static const struct contract_field contract_forward_fields[] = {
    {"platform", ALWAYS, "string"},
    {"botId", ALWAYS, "string"},
    {"method", ALWAYS, "string"},
    {"path", ALWAYS, "string"},
    {"headers", ALWAYS, "string[][]"},
    {"bodyB64", ALWAYS, "string"},
    {NULL},
};

static const struct contract_field contract_result_fields[] = {
    {"success", ALWAYS, "bool"},     {"queued", MAYBE, "bool"},
    {"message_id", MAYBE, "string"}, {"error", MAYBE, "string"},
    {"thread_id", MAYBE, "string"},  {"auto_thread_name", MAYBE, "string"},
    {"chat_info", MAYBE, "object"},  {NULL},
};

static const struct contract_field contract_chat_info_fields[] = {
    {"name", ALWAYS, "string"},
    {"type", ALWAYS, "string"},
    {NULL},
};

static const struct contract_field contract_action_fields[] = {
    {"op", ALWAYS, "string"},
    {"chat_id", MAYBE, "string"},
    {"content", MAYBE, "string"},
    {"reply_to", MAYBE, "string or null"},
    {"message_id", MAYBE, "string"},
    {"session_key", MAYBE, "string"},
    {"kind", MAYBE, "string"},
    {"metadata", MAYBE, "object"},
    {"media_kind", MAYBE, "string"},
    {"source_url", MAYBE, "string"},
    {"filename", MAYBE, "string"},
    {"prompt_kind", MAYBE, "string"},
    {"prompt_id", MAYBE, "string"},
    {"options", MAYBE, "object[]"},
    {"timeout_s", MAYBE, "int"},
    {"deciders", MAYBE, "string"},
    {"emoji", MAYBE, "string"},
    {"remove", MAYBE, "bool"},
    {"thread_name", MAYBE, "string"},
    {"only_if_current_name", MAYBE, "string"},
    {"only_if_connector_created", MAYBE, "bool"},
    {"draft_id", MAYBE, "int"},
    {"final", MAYBE, "bool"},
    {"message", MAYBE, "bool"},
    {"card_id", MAYBE, "string"},
    {"chunks", MAYBE, "object[]"},
    {NULL},
};

static const struct contract_field contract_metadata_fields[] = {
    {"thread_id", MAYBE, "string"},
    {"thread_ts", MAYBE, "string"},
    {"scope_id", MAYBE, "string"},
    {"guild_id", MAYBE, "string"},
    {"user_id", MAYBE, "string"},
    {"traceparent", MAYBE, "string"},
    {NULL},
};

static const struct contract_field hello[] = {
    {"platform", MAYBE, "string"},
    {"botId", MAYBE, "string"},
    {"command_manifest", MAYBE, "object[]"},
    {"late_acks", MAYBE, "bool"},
    {NULL},
};
static const struct contract_field outbound[] = {
    {"requestId", ALWAYS, "string"},
    {"action", ALWAYS, "object"},
    {"platform", MAYBE, "string"},
    {"botId", MAYBE, "string"},
    {NULL},
};
static const struct contract_field contract_media_fields[] = {
    {"kind", ALWAYS, "string"},    {"mime", ALWAYS, "string"},   {"size", MAYBE, "int"},
    {"filename", MAYBE, "string"}, {"caption", MAYBE, "string"}, {NULL},
};
static const struct contract_field interrupt[] = {
    {"session_key", ALWAYS, "string"},
    {"reason", MAYBE, "string or null"},
    {NULL},
};
static const struct contract_field inbound_ack[] = {{"bufferId", ALWAYS, "string"}, {NULL}};
static const struct contract_field nothing[] = {{NULL}};
static const struct contract_field descriptor[] = {{"descriptor", ALWAYS, "object"}, {NULL}};
static const struct contract_field inbound[] = {
    {"event", ALWAYS, "object"},
    {"bufferId", MAYBE, "string"},
    {NULL},
};
static const struct contract_field outbound_result[] = {
    {"requestId", ALWAYS, "string"},
    {"result", ALWAYS, "object"},
    {NULL},
};
static const struct contract_field interrupt_inbound[] = {
    {"session_key", ALWAYS, "string"},
    {"chat_id", ALWAYS, "string"},
    {"reason", MAYBE, "string"},
    {NULL},
};
static const struct contract_field passthrough_forward[] = {
    {"forward", ALWAYS, "object"},
    {"bufferId", MAYBE, "string"},
    {NULL},
};

static const struct contract_frame contract_frames[] = {
    {"hello", false, hello},
    {"outbound", false, outbound},
    {"interrupt", false, interrupt},
    {"going_idle", false, nothing},
    {"inbound_ack", false, inbound_ack},
    {"descriptor", true, descriptor},
    {"inbound", true, inbound},
    {"outbound_result", true, outbound_result},
    {"interrupt_inbound", true, interrupt_inbound},
    {"passthrough_forward", true, passthrough_forward},
    {"going_idle_ack", true, nothing},
    {NULL},
};

static const char *const contract_ops[] = {
    "send",  "edit",          "typing",        "follow_up", "get_chat_info", "send_media", "prompt",
    "react", "thread_create", "thread_rename", "draft",     "task_card",     NULL,
};

static const struct contract_error contract_errors[] = {
    {ACTION_ERROR_TRANSIENT, "resends"},
    {ACTION_ERROR_UNKNOWN, "stops"},
    {ACTION_ERROR_NOT_ROUTED, "falls back"},
    {NULL},
};

static const struct contract_limit contract_limits[] = {
    {"window", CONTRACT_WINDOW},
    {"pack_bytes", CONTRACT_PACK_BYTES},
    {"max_frame", CONTRACT_MAX_FRAME},
    {"max_attempts", CONTRACT_MAX_ATTEMPTS},
    {"ping_ms", CONTRACT_PING_MS},
    {"pong_patience_ms", CONTRACT_PONG_PATIENCE_MS},
    {"ack_patience_ms", CONTRACT_ACK_PATIENCE_MS},
    {"ack_linger_ms", CONTRACT_ACK_LINGER_MS},
    {"old_socket_ms", CONTRACT_OLD_SOCKET_MS},
    {"action_ms", CONTRACT_ACTION_MS},
    {"wake_cooldown_ms", CONTRACT_WAKE_COOLDOWN_MS},
    {"wake_longest_ms", CONTRACT_WAKE_LONGEST_MS},
    {"stop_hold_ms", CONTRACT_STOP_HOLD_MS},
    {"token_skew_s", TOKEN_SKEW_S},
    {"request_id_bytes", FRAME_REQUEST_ID_MAX},
    {NULL},
};
