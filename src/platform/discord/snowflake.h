/* snowflake.h - Discord's ids: 64-bit numbers that come as text. */
#pragma once
#include "base/json.h"

uint64_t snowflake(struct str text); /* 0: not an id */
uint64_t json_snowflake(struct json object, const char *key);
