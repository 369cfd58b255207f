/* erase_route.c - POST /admin/erase: deletes everything kept about one tenant or one person.
 *
 *      {"tenant", "dryRun"?}            -> {"instances", "keys", "waiting", "chats", "messages",
 *                                           "outgoing", "questions", "replies", "wakes", "media",
 *                                           "skills", "data", "routes"}
 *      {"platform", "user", "dryRun"?}  -> {"messages", "names", "media", "chats", "waiting",
 *                                           "quoted", "outgoing", "questions", "links",
 *                                           "allowLists"}
 *
 * Each module erases its own records (store/erasure.h); this file decides the order.  A tenant's
 * instances end and its keys are revoked first, so that nothing new arrives during the erasure. */
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/data.h"
#include "dispatch/dispatch.h"
#include "host/host.h"
#include "http/front_priv.h"
#include "media/media.h"
#include "relay/relay.h"
#include "skills/skills.h"
#include "store/erasure.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"
#include "tenancy/keys.h"

struct erase_request { /* an erasure that somebody waits for */
    struct front *f;   /* borrowed */
    struct http_id id;
    struct platform_erase platforms;
};

static uint64_t forget_file(void *ctx, struct str id, bool dry)
{
    const struct front *f = ctx;

    if (f->media == NULL)
        return 0;
    return dry ? media_find(f->media, id) != NULL : media_forget(f->media, id);
}

static struct platform *nth_platform(void *ctx, size_t i)
{
    const struct front *f = ctx;

    return i < host_n_platforms(f->host) ? host_nth_platform(f->host, i) : NULL;
}

static void on_erased(void *ctx, struct erasure *e, const char *failed)
{
    struct erase_request *a = ctx;
    const struct erase_subject *s = erasure_subject(e);
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    erasure_write(e, &w);
    jw_end_obj(&w);
    if (failed != NULL) {
        http_answer_error(a->f->server, a->id, 503, "unavailable", "%s", failed);
    } else {
        if (!s->dry && s->tenant.p != NULL)
            log_info(NULL, "a tenant was erased: tenant=%.*s", STR_FMT(s->tenant));
        else if (!s->dry)
            log_info(NULL, "a person was erased: platform=%.*s", STR_FMT(s->platform));
        front_json(a->f, a->id, 200, &body);
    }
    buf_done(&body);
}

static void start(struct front *f, struct http_req *req, const struct erase_subject *s)
{
    struct erase_request *a = xcalloc(1, sizeof *a);
    const struct erase_with with[] = {{&relay_eraser, f->relay},
                                      {&facts_eraser, f->facts},
                                      {&keys_eraser, f->keys},
                                      {&relay_chats_eraser, f->relay},
                                      {platform_find(STR("web"))->eraser, &a->platforms},
                                      {&platforms_eraser, &a->platforms},
                                      {&dispatch_eraser, f->dispatch},
                                      {&skills_eraser, f->skills},
                                      {&data_eraser, f->data},
                                      {&media_eraser, f->media}};

    *a = (struct erase_request){f, http_req_id(req), {nth_platform, forget_file, f}};
    erasure_start(f->store, s, with, ARRAY_LEN(with) - (f->media == NULL), on_erased, a);
}

void admin_erase(struct front *f, struct http_req *req)
{
    struct json_parser *parser = json_parser_new();
    struct json doc = {0};
    bool reads = json_parse(parser, http_body(req), &doc);
    struct erase_subject s = {.tenant = json_str(doc, "tenant"),
                              .platform = json_str(doc, "platform"),
                              .user = json_str(doc, "user"),
                              .dry = json_as_bool(json_get(doc, "dryRun"), false)};

    if (!facts_name_ok(s.tenant))
        s.tenant = STR_NULL;
    if (reads && (s.tenant.p != NULL || (grant_id_ok(s.user) && platform_find(s.platform) != NULL)))
        start(f, req, &s);
    else
        http_answer_error(f->server, http_req_id(req), 400, "malformed",
                          "Whom? A tenant, or platform and user, and the platform must be one that "
                          "this server knows.");
    json_parser_free(parser);
}
