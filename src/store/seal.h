/* seal.h - encrypts secrets inside record values with the master key.
 *
 * The master key is 64 hex digits or a passphrase (BELLHOP_MASTER_KEY), or a file that is made when
 * it is missing.  A passphrase is stretched with the salt of its database.
 *
 * Fingerprints (seal_mac) have a root key of their own.  At first it is the master key.  A change
 * of the master key seals the old root into the database, so that tokens made before stay valid.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

struct seal; /* the master key; wiped when freed */
struct store;

/* Opens the key of the database in @st: from @text, or, when absent, from the file @path, which is
 * created with mode 0600 when missing.  The first start stores a check value.  BH_REFUSED: the
 * database was sealed with another key, or a change of the key was interrupted.  Blocks: for
 * start-up.  @ret_why has 256 bytes. */
enum bh_err seal_open_for(struct store *st, struct str text, const char *path,
                          struct seal **ret_seal, char *ret_why) BH_MUST_USE;
/* The key alone, without a database; only a passphrase needs the @salt. */
enum bh_err seal_open_master(struct str text, struct str salt, const char *path,
                             struct seal **ret_seal, char *ret_why);
void seal_free(struct seal *s);

/* Appends base64 of the sealed text.  @name binds it to its place, e.g. "gateway/gw-1/secret".  The
 * sealed length depends only on the length of @plain. */
void seal_secret(const struct seal *s, struct str name, struct str plain, struct buf *out);
bool unseal_secret(const struct seal *s, struct str name, struct str sealed, struct buf *out);
/* A keyed fingerprint (a MAC): only the key can make or check one.  @name separates the uses. */
void seal_mac(const struct seal *s, struct str name, struct str text, uint8_t ret_mac[32]);

/* ---- changing the key ---- */

/* Changes the key of a database that no server uses, or resumes an interrupted change.  Seals the
 * sealed fields of all records of @forms (ends with NULL) with the new key.
 *
 *      @from   the current key; absent: the file at @path
 *      @to     the new key; absent: a new file, which is renamed to @path at the end
 *
 * The old file stays as @path with ".old" appended (".old.2" and so on): older backups need it.
 * If only the renames are missing, a resumed change does just those.  Runs @loop while it waits.
 * @each reports the number of records read. */
struct seal_change {
    struct store *store;
    struct loop *loop;
    struct str from, to;
    const char *path;
    const struct record_form *const *forms;
    void (*each)(void *ctx, uint64_t records);
    void *ctx;
    uint64_t records, sealed; /* results: records read, and records sealed by this call */
    struct buf old;           /* result: path of the old key file, or empty; the caller frees it */
};
enum bh_err seal_change(struct seal_change *c, char *ret_why) BH_MUST_USE;
