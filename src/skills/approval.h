/* approval.h - signatures on skills: `# Status: Approved v3:SIGNATURE`.
 *
 * The operator signs with a private key that never enters the server; the server verifies with
 * the public key.  The signature covers the body without its status and tag lines, line ends
 * normalised to LF.  A changed status or tag keeps the signature valid; every other edit breaks
 * it. */
#pragma once
#include "base/crypto.h"
#include "skills/text.h"

/* Appends the text that a signature covers. */
void skill_canonical(struct str body, struct buf *out);

/* True: the body says Approved and carries a valid signature.  False: @ret_why (may be NULL) is a
 * string literal with the reason. */
bool skill_is_approved(struct str body, const struct ed25519_key *public_key, const char **ret_why);

/* Appends the signed body, for `bellhop skill approve`.  The status line goes into the top header
 * block.  False: @ret_why (256 bytes) tells the operator why the body cannot be signed. */
bool skill_sign(struct str body, const struct ed25519_key *private_key, struct buf *out,
                char *ret_why);
