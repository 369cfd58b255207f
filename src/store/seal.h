/* seal.h - secrets inside record values, closed with the master key.
 *
 * The master key is 64 hex digits or a passphrase (BELLHOP_MASTER_KEY), or a file that is made when
 * it is missing.  A passphrase is stretched with the salt of its database, or with a fixed one
 * where the database has none.
 *
 * Fingerprints are made with a root of their own, which is the master key at first and moves,
 * sealed, into the database when the key is changed: tokens given out before stay good.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

struct seal; /* the master key; wiped when freed */
struct store;

/* The key that belongs to the database in @st: from @text, or, when absent, from the file @path,
 * created with mode 0600 when missing.  Refused when the database was sealed with another one, or
 * when a change of the key was interrupted.  Blocks: for start-up.  @ret_why has 256 bytes. */
enum bh_err seal_open_for(struct store *st, struct str text, const char *path,
                          struct seal **ret_seal, char *ret_why) BH_MUST_USE;
/* The key alone, without a database: a passphrase's salt is the fixed one. */
enum bh_err seal_open_master(struct str text, const char *path, struct seal **ret_seal,
                             char *ret_why);
void seal_free(struct seal *s);

/* base64(sealed); @name binds it to its place, e.g. "gateway/gw-1/secret".  What is sealed of texts
 * of one length has one length. */
void seal_secret(const struct seal *s, struct str name, struct str plain, struct buf *out);
bool unseal_secret(const struct seal *s, struct str name, struct str sealed, struct buf *out);
/* A keyed fingerprint: nobody without the key can make or check one.  @name keeps uses apart. */
void seal_mac(const struct seal *s, struct str name, struct str text, uint8_t ret_mac[32]);
/* A value that tells whether the key matches the database: stored once, checked at every start. */
bool seal_check(const struct seal *s, struct store *st, char *ret_why);

/* ---- changing the key ---- */

/* Change the key of a database that no server uses, and go on with a change that was interrupted:
 * the sealed fields of all records of @forms (ends with NULL) are sealed anew.  @from, or the file
 * at @path, is the key it has; @to, or a file beside @path that takes its place at the end, the key
 * it gets.  The old file stays as @path with ".old" behind it (".old.2" and so on where there is
 * one already): older backups need it.  A change that was over but for the names of the files is
 * not begun anew.  Turns @loop while it waits.  @each: how many records were looked at. */
struct loop;
struct record_form;
struct seal_change {
    struct store *store;
    struct loop *loop;
    struct str from, to;
    const char *path;
    const struct record_form *const *forms;
    void (*each)(void *ctx, uint64_t records);
    void *ctx;
    uint64_t records, sealed; /* the answer: looked at, and sealed anew this time */
    struct buf old;           /* where the old file is now, empty: there was none; buf_done() it */
};
enum bh_err seal_change(struct seal_change *c, char *ret_why) BH_MUST_USE;
