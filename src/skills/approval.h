/* approval.h - signatures on skills: `# Status: Approved v3:SIGNATURE`.
 *
 * The operator signs with a private key that never enters the server; the server checks
 * with the public one.  Signed is the body without its status and tag lines and with plain
 * line ends, so a status that moves or a tag that changes keeps a signature valid and every
 * other edit breaks it. */
#pragma once
#include "base/crypto.h"
#include "skills/text.h"

void skill_canonical(struct str body, struct buf *out);

/* True: the body says Approved and carries a valid signature.  @ret_why (may be NULL): a
 * literal. */
bool skill_is_approved(struct str body, const struct ed25519_key *public_key, const char **ret_why);

/* The body signed, for `bellhop skill approve`; the status line stands in the top header block.
 * False: it cannot be, and @ret_why (256 bytes) tells the operator why. */
bool skill_sign(struct str body, const struct ed25519_key *private_key, struct buf *out,
                char *ret_why);
