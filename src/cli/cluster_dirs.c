/* cluster_dirs.c - design.  (cluster_dirs.h has the contract.)
 *
 *      record   file      what it means
 *      none     none      the first node: file, then record
 *      none     ours      a node died between the two: record
 *      any      other's   refuse: the directory of another installation
 *      w        w         the same directory
 *      w        none      refuse: not the directory of the other nodes
 *
 * The file holds the identity of the installation, a hash of the database's random key, and the
 * random word. */
#include "cli/cluster_dirs.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/rand.h"
#include "cli/settings.h"
#include "dispatch/dispatch.h"
#include "media/media.h"
#include "net/loop.h"
#include "skills/skills.h"
#include "store/record.h"
#include "store/store.h"

#define MARK ".bellhop-shared"
enum { WORD_BYTES = 16, TURN_MS = 1000, WRITE_TURNS = 15 };

struct cluster_dir_record { /* "media", "skills" */
    struct str name, mark;
};
static const struct record_field cluster_dir_fields[] = {
    RECORD_FIELD(struct cluster_dir_record, name, "name", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct cluster_dir_record, mark, "mark", RECORD_NEEDED),
};
static const struct record_form cluster_dir_form =
    RECORD_FORM("shared", struct cluster_dir_record, cluster_dir_fields);
const struct record_form *const cluster_dir_records[] = {&cluster_dir_form, NULL};

struct check {
    struct loop *loop;
    struct store *store;
    struct rand *rand;
    char *why;
    struct str name;   /* of the record that is read */
    struct buf found;  /* its mark; empty: no such record */
    enum bh_err wrote; /* result of the write; BH_CANCELLED: in flight */
};

static bool is_shared(const struct config *cfg)
{
    const struct store_settings *store = config_get(cfg, &store_config);

    return strcmp(store->kind, "postgres") == 0;
}

const char *cluster_node_name(const struct config *cfg, char room[NODE_NAME_BYTES + 1])
{
    if (!is_shared(cfg))
        return NULL;
    node_name_of(config_get(cfg, &cluster_config), room);
    return room;
}

bool cluster_settings_fit(const struct config *cfg, char *ret_why)
{
    const struct skills_settings *skills = config_get(cfg, &skills_section);
    bool shared = is_shared(cfg);
    const char *no = NULL;

    if (shared && strcmp(skills->kind, "sqlite") == 0)
        no = "skills.kind: sqlite is a file on one machine, but store.kind: postgres serves "
             "several. Leave skills.kind out, or use filesystem with a shared skills.dir";
    else if (!shared && strcmp(skills->kind, "postgres") == 0)
        no = "skills.kind: postgres needs store.kind: postgres";
    else if (shared && strcmp(skills->kind, "filesystem") == 0 && skills->dir == NULL)
        no = "skills.kind: filesystem with store.kind: postgres needs skills.dir, a directory that "
             "all nodes share";
    else if (!shared && dispatch_names_node(cfg, NULL))
        no = "agents: node needs store.kind: postgres";
    if (no != NULL)
        snprintf(ret_why, 256, "%s", no);
    return no == NULL;
}

/* ---- records ---- */

static bool on_record(void *ctx, struct str key, void *thing)
{
    const struct cluster_dir_record *r = thing;
    struct check *c = ctx;

    if (str_eq(r->name, c->name))
        buf_add_str(&c->found, r->mark);
    return true;
}

static bool look(struct check *c, const char *name)
{
    c->name = str_of(name);
    buf_reset(&c->found);
    return record_load(c->store, &cluster_dir_form, NULL, STR_NULL, on_record, c, c->why) == BH_OK;
}

static void on_written(void *ctx, enum bh_err err)
{
    ((struct check *)ctx)->wrote = err;
}

/* BH_CONFLICT: another node was first.  A retry is safe with both verbs. */
static enum bh_err note(struct check *c, enum store_kv_verb verb, const char *name, struct str mark)
{
    struct buf key = BUF_INIT, value = BUF_INIT;

    record_write(&cluster_dir_form, NULL, &(struct cluster_dir_record){str_of(name), mark}, &key,
                 &value);
    struct store_kv item = {verb, cluster_dir_form.ns, buf_str(&key), buf_str(&value)};
    c->wrote = BH_CANCELLED;
    struct store_put *put = store_put(c->store, &item, 1, true, on_written, c);
    for (int i = 0; i < WRITE_TURNS && c->wrote == BH_CANCELLED; i++)
        loop_turn(c->loop, TURN_MS);
    if (c->wrote == BH_CANCELLED)
        store_put_cancel(&put);
    if (c->wrote != BH_OK && c->wrote != BH_CONFLICT)
        snprintf(c->why, 256, "cannot write to the database");
    buf_done(&key);
    buf_done(&value);
    return c->wrote;
}

/* ---- directories ---- */

/* The identity of the installation, as a hash. */
static void add_identity(const struct check *c, struct buf *out)
{
    uint8_t hash[SHA256_BYTES];

    sha256(str_make(&c->store->dedup_key, sizeof c->store->dedup_key), hash);
    hex_add(out, hash, 8);
}

/* Makes the mark of a directory that no node has used yet. */
static bool make_mark(struct check *c, const char *path, struct buf *mark)
{
    uint8_t word[WORD_BYTES];

    rand_bytes(c->rand, word, sizeof word);
    add_identity(c, mark);
    buf_add_c(mark, ' ');
    hex_add(mark, word, sizeof word);
    if (file_put(path, O_EXCL, buf_str(mark)) && file_sync_folder_of(path))
        return true;
    if (errno == EEXIST) { /* another node made it at the same moment */
        buf_reset(mark);
        if (file_read(path, 256, mark))
            return true;
    }
    return bh_why(c->why, "cannot write %.180s: %s", path, strerror(errno));
}

static bool is_ours(struct check *c, const char *setting, const char *dir, const struct buf *mark)
{
    struct buf us = BUF_INIT;

    add_identity(c, &us);
    bool ours = str_starts(buf_str(mark), buf_str(&us));
    buf_done(&us);
    if (!ours)
        snprintf(c->why, 256,
                 "%s: %.100s belongs to another installation (says its file " MARK
                 "). Use another directory",
                 setting, dir);
    return ours;
}

static bool mark_fits(struct check *c, const char *name, const char *setting, const char *dir,
                      const char *path)
{
    struct buf mark = BUF_INIT;
    bool ok = look(c, name);

    if (ok && !file_read(path, 256, &mark) && c->found.n > 0) {
        snprintf(c->why, 256,
                 "%s: %.100s is not the directory that the other nodes use (it has no file " MARK
                 "). Mount their directory, or copy it with that file",
                 setting, dir);
        ok = false;
    }
    if (ok && mark.n == 0)
        ok = make_mark(c, path, &mark);
    ok = ok && is_ours(c, setting, dir, &mark);
    if (ok && c->found.n == 0) {
        enum bh_err err = note(c, KV_INSERT, name, buf_str(&mark));
        ok = err == BH_OK || (err == BH_CONFLICT && look(c, name));
        if (err == BH_OK)
            buf_add_str(&c->found, buf_str(&mark));
    }
    if (ok && !str_eq(buf_str(&c->found), buf_str(&mark))) {
        snprintf(c->why, 256,
                 "%s: %.100s is not the directory that the other nodes use. Mount their directory",
                 setting, dir);
        ok = false;
    }
    buf_done(&mark);
    return ok;
}

static bool directory_fits(struct check *c, const char *name, const char *setting, const char *dir)
{
    struct buf path = BUF_INIT;
    bool ok = mkdir(dir, 0700) == 0 || errno == EEXIST;

    buf_printf(&path, "%s/" MARK, dir);
    if (!ok)
        snprintf(c->why, 256, "%s: cannot make %.150s: %s", setting, dir, strerror(errno));
    ok = ok && mark_fits(c, name, setting, dir, buf_z(&path));
    buf_done(&path);
    return ok;
}

enum bh_err cluster_dirs_check(struct loop *loop, struct store *store, struct rand *rand,
                               const struct config *cfg, char *ret_why)
{
    const struct skills_settings *skills = config_get(cfg, &skills_section);
    const struct media_settings *media = config_get(cfg, &media_config);
    struct check c = {.loop = loop, .store = store, .rand = rand, .why = ret_why};
    bool ok = (strcmp(skills->kind, "filesystem") != 0 ||
               directory_fits(&c, "skills", "skills.dir", skills->dir)) &&
              (media->dir == NULL || directory_fits(&c, "media", "media.dir", media->dir));

    buf_done(&c.found);
    return ok ? BH_OK : BH_REFUSED;
}
