/* server_stores.c - the skill store and the data store of a server, and the tools over them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/config.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/server.h"
#include "cli/settings.h"
#include "cli/shared.h"
#include "cli/state_dir.h"
#include "data/data.h"
#include "http/v1.h"
#include "mcp/mcp.h"
#include "net/loop.h"
#include "skills/skills.h"
#include "store/store.h"

static bool read_approval_key(const char *setting, struct buf *pem, char *why)
{
    if (strncmp(setting, "-----", 5) == 0) {
        buf_add_z(pem, setting);
        return true;
    }
    if (file_read(setting, 65536, pem))
        return true;
    snprintf(why, 512, "skills.approval.public_key: %.200s: %s", setting, strerror(errno));
    return false;
}

static enum bh_err open_skills(struct server *s, char *why)
{
    const struct skills_settings *c = config_get(s->cfg, &skills_section);
    const char *kind = skills_kind(c, s->store->shared);
    bool files = strcmp(kind, "filesystem") == 0;
    bool secured = strcmp(c->approval_mode, "secured") == 0;
    char *path = files && c->dir != NULL
                     ? xstrdup(c->dir)
                     : state_dir_path(s->settings->state_dir, files ? "skills" : "skills.db");
    const struct store_settings *store = config_get(s->cfg, &store_config);
    struct skills_config sc = {.backend = kind,
                               .path = path,
                               .url = store->url,
                               .ledger = s->ledger};
    struct buf pem = BUF_INIT;
    enum bh_err err = BH_REFUSED;

    if (!secured || read_approval_key(c->approval_key, &pem, why)) {
        sc.approval_key = secured ? buf_z(&pem) : NULL;
        err = skills_open(s->loop, &sc, &s->skills, why);
    }
    buf_done(&pem);
    free(path);
    return err;
}

/* What programs reach by key: the stores, and the tools that are made of them. */
enum bh_err server_open_stores(struct server *s, char *why)
{
    char *data = state_dir_path(s->settings->state_dir, "data");
    const struct data_settings *named = config_get(s->cfg, &data_section);
    char off[256];
    struct data_config dc = {.dir = data,
                             .off = shared_data_is_off(s->cfg, off) ? off : NULL,
                             .elsewhere = named->node != NULL,
                             .ledger = s->ledger};
    enum bh_err err = open_skills(s, why);

    if (err == BH_OK)
        err = data_open(s->loop, &dc, &s->data, why);
    free(data);
    if (err != BH_OK)
        return err;
    struct mcp_env me = {.clock = loop_clock(s->loop),
                         .rand = &s->rand,
                         .version = BELLHOP_VERSION,
                         .may = v1_may_again,
                         .may_ctx = &s->front,
                         .instructions =
                             "Skills are named texts with a status and a history; data "
                             "are notes found by their words. Both are shared by the "
                             "agents of one organisation. Where there are chat tools, "
                             "people write to you: read, answer, then say what you have "
                             "taken care of."};
    seal_mac(s->seal, STR("mcp sessions"), STR(""), me.session_key);
    s->mcp = mcp_new(&me);
    tools_add(s->mcp, &s->front);
    return BH_OK;
}
