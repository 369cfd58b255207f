/* auth.h - decides who wrote a mail, from the Authentication-Results of our own mail server.  Pure.
 *
 *      From: alice@example.org           anybody can write this line
 *      Authentication-Results: mx.our.example; dmarc=pass header.from=example.org
 *                              '- added by the server that received the mail (RFC 8601)
 *
 * Only the topmost header of the configured authserv-id counts: every server writes its header
 * above those that the mail already had.  The From domain is proven by dmarc=pass, or by dkim=pass
 * or spf=pass for an aligned domain.  Two domains are aligned if they are equal, or if the public
 * suffix list gives both the same registrable domain.  dmarc=fail refuses the mail, whatever the
 * other results say: the owner of the domain asked for stricter rules.
 *
 * inbound.c calls it for every mail, off the loop; tests/fuzz/fuzz_email.c feeds it bytes.
 */
#pragma once
#include "base/str.h"

struct auth_list; /* the public suffix list */

/* Blocks: loads GMime and libpsl, and reads the system's list.  NULL: there is none, and only equal
 * domains are aligned. */
struct auth_list *auth_list_load(void);
void auth_list_free(struct auth_list *l); /* NULL is fine */

#define AUTH_NO_ID STR("-") /* an authserv-id for servers whose header has none: Exchange Online */
#define AUTH_MAX_HEADER 65536

/* Is @domain aligned with @from?  Both may have any case. */
bool auth_aligned(const struct auth_list *l, struct str domain, struct str from);

/* True when the value of an Authentication-Results header is the one of @authserv_id, also if the
 * rest of it cannot be read: then auth_judge() says so. */
bool auth_is_of(struct str value, struct str authserv_id);
/* What the header @value proves about mail from @from_domain.  NULL: @from_domain wrote it.  Else:
 * why that is not proven, a literal sentence. */
const char *auth_judge(struct str value, struct str from_domain, const struct auth_list *l);

extern const char auth_missing[]; /* the sentence for a mail without such a header */
