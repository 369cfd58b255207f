/* used.h - the enrollment tokens that were used, for as long as they would be good otherwise.
 *
 * That a token was used is one record under its nonce, written in the transaction that used it.
 * Once the token has expired the record says nothing any more: it is deleted, at a start or within
 * the hour.  So there are never more than tokens that are still good, and an hour's worth.
 *
 * Only files of this folder include it. */
#pragma once
#include "tenancy/change.h"

#define USED_SWEEP_MS 3600000

/* In prepare(): the record, which conflicts when the token was used before. */
void used_put(struct change *c, struct str nonce, int64_t now_ms, int64_t until_ms);
/* In apply(): it is on disk. */
void used_add(struct facts *f, struct str nonce, int64_t until_ms);

enum bh_err used_load(struct facts *f);
void used_free(struct facts *f);
