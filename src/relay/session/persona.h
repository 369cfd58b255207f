/* persona.h - the (platform, bot) pairs a socket said hello for: the personas it may speak as.
 */
#pragma once
#include "base/str.h"

struct session;

#define PERSONA_MAX 16 /* per socket; more are answered but not remembered */

/* The first one is the default. */
void persona_add(struct session *s, struct str platform, struct str bot);
/* True when the socket may speak as this pair; an empty @bot asks for any and @ret_bot gets it. */
bool persona_find(const struct session *s, struct str platform, struct str bot,
                  struct str *ret_bot);
bool persona_default(const struct session *s, struct str *ret_platform, struct str *ret_bot);
