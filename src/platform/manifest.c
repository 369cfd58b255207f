/* manifest.c - the commands that gateways announce.  (manifest.h has the contract.) */
#include "platform/manifest.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "platform/platform.h"
#include "store/store.h"

enum { NAME_MAX_CHARS = 32, DESCRIPTION_CHARS = 100 };

struct announced { /* the commands of one gateway */
    struct list link;
    char *gateway;       /* owned */
    int64_t since_ms;    /* wall clock of its first announcement */
    struct buf commands; /* a JSON array of valid entries */
};

struct manifests {
    struct host *host;   /* borrowed */
    struct clock *clock; /* borrowed */
    struct store *store; /* borrowed */
    struct list all;     /* struct announced, owned; the first to announce is first */
    struct map by_id;
    struct json_parser *parser; /* owned */
    struct timer soon;
    bool full_told;
};

/* ---- valid entries ---- */

static bool is_name(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '_' || c == '-'))
            return false;
    }
    return s.n > 0 && s.n <= NAME_MAX_CHARS;
}

static bool is_good(struct json entry)
{
    struct str description = json_str(entry, "description");
    enum json_type options = json_type(json_get(entry, "options"));

    return is_name(json_str(entry, "name")) && description.n > 0 &&
           utf8_chars(description) <= DESCRIPTION_CHARS &&
           (options == JSON_ABSENT || options == JSON_NULL || options == JSON_ARRAY);
}

static void write_entry(struct jw *w, struct json entry)
{
    struct json options = json_get(entry, "options");

    jw_obj(w);
    jw_kstr(w, "name", json_str(entry, "name"));
    jw_kstr(w, "description", json_str(entry, "description"));
    if (json_type(options) == JSON_ARRAY && json_count(options) > 0)
        jw_kvalue(w, "options", options);
    jw_end_obj(w);
}

/* ---- the commands of each gateway ---- */

static void announced_free(struct manifests *ms, struct announced *a)
{
    map_del(&ms->by_id, str_of(a->gateway));
    list_remove(&a->link);
    buf_done(&a->commands);
    free(a->gateway);
    free(a);
}

static struct announced *announced_get(struct manifests *ms, struct str gateway)
{
    struct announced *a = map_get(&ms->by_id, gateway);

    if (a != NULL)
        return a;
    if (map_count(&ms->by_id) >= MANIFEST_GATEWAYS) {
        if (!ms->full_told)
            log_warn(NULL, "more than %d gateways announced commands; the rest are not registered",
                     MANIFEST_GATEWAYS);
        ms->full_told = true;
        return NULL;
    }
    a = xcalloc(1, sizeof *a);
    a->gateway = str_dup(gateway);
    a->since_ms = clock_wall_ms(ms->clock);
    list_append(&ms->all, &a->link);
    map_put(&ms->by_id, str_of(a->gateway), a);
    return a;
}

struct manifest_record {
    struct str gateway;
    int64_t since_ms;
    struct record_json commands;
};
static const struct record_field manifest_fields[] = {
    RECORD_FIELD(struct manifest_record, gateway, "gateway", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct manifest_record, since_ms, "since", 0),
    RECORD_FIELD(struct manifest_record, commands, "commands", RECORD_NEEDED),
};
const struct record_form manifest_form =
    RECORD_FORM("manifest", struct manifest_record, manifest_fields, .lossy = true);

void manifests_look(struct manifests *ms)
{
    if (!list_is_empty(&ms->all) && !timer_is_set(&ms->soon))
        timer_set(ms->clock, &ms->soon, MANIFEST_DEBOUNCE_MS);
}

void manifests_hear(struct manifests *ms, struct str gateway, struct json manifest)
{
    BUF_LOCAL good = BUF_INIT;

    struct jw w = jw_begin(&good);
    size_t n = 0;
    jw_arr(&w);
    for (struct json_iter it = {0}; n < MANIFEST_COMMANDS && json_next(manifest, &it);)
        if (is_good(it.value)) {
            write_entry(&w, it.value);
            n++;
        }
    jw_end_arr(&w);
    struct announced *a = good.n <= MANIFEST_BYTES ? announced_get(ms, gateway) : NULL;
    if (a != NULL && !str_eq(buf_str(&a->commands), buf_str(&good))) {
        buf_reset(&a->commands);
        buf_add_str(&a->commands, buf_str(&good));
        struct manifest_record r = {str_of(a->gateway), a->since_ms, {.text = buf_str(&good)}};
        record_put(ms->store, &manifest_form, NULL, &r, false, NULL, NULL);
        timer_set(ms->clock, &ms->soon, MANIFEST_DEBOUNCE_MS);
    }
}

/* ---- the merge for each bot ---- */

static void merge_one(struct jw *w, struct json commands, struct map *names, size_t *n)
{
    for (struct json_iter it = {0}; *n < MANIFEST_COMMANDS && json_next(commands, &it);) {
        struct str name = json_str(it.value, "name");
        if (map_get(names, name) != NULL)
            continue;
        char *kept = str_dup(name); /* the parser reads another document next */
        map_put(names, str_of(kept), kept);
        write_entry(w, it.value);
        ++*n;
    }
}

static void merge(struct manifests *ms, struct platform *p, struct buf *out)
{
    struct map names = MAP_INIT;
    struct jw w = jw_begin(out);
    size_t n = 0;

    jw_arr(&w);
    list_each (&ms->all, it, nxt) {
        struct announced *a = list_entry(it, struct announced, link);
        struct json doc;
        if (host_announcer(ms->host, str_of(a->gateway), p) == ANNOUNCER_OWN &&
            json_parse(ms->parser, buf_str(&a->commands), &doc))
            merge_one(&w, doc, &names, &n);
    }
    jw_end_arr(&w);
    map_done_all(&names);
}

static void on_soon(struct timer *t)
{
    struct manifests *ms = container_of(t, struct manifests, soon);
    BUF_LOCAL merged = BUF_INIT;

    list_each (&ms->all, it, nxt) {
        struct announced *a = list_entry(it, struct announced, link);
        if (host_announcer(ms->host, str_of(a->gateway), NULL) != ANNOUNCER_GONE)
            continue;
        record_delete(ms->store, &manifest_form, str_of(a->gateway));
        announced_free(ms, a);
    }
    for (size_t i = 0; i < host_n_platforms(ms->host); i++) {
        struct platform *p = host_nth_platform(ms->host, i);
        if (p->ops->set_commands == NULL)
            continue;
        buf_reset(&merged);
        merge(ms, p, &merged);
        p->ops->set_commands(p, buf_str(&merged));
    }
}

/* ---- life ---- */

static bool on_loaded(void *ctx, struct str key, void *thing)
{
    const struct manifest_record *r = thing;
    struct announced *a = announced_get(ctx, key);

    if (a == NULL)
        return true;
    struct jw w = jw_begin(&a->commands);
    a->since_ms = r->since_ms;
    jw_value(&w, r->commands.value);
    return true;
}

static int by_age(const void *x, const void *y)
{
    const struct announced *a = *(struct announced *const *)x, *b = *(struct announced *const *)y;

    return a->since_ms != b->since_ms ? (a->since_ms > b->since_ms) - (a->since_ms < b->since_ms)
                                      : strcmp(a->gateway, b->gateway);
}

struct manifests *manifests_open(struct host *h)
{
    const struct host_env *env = host_env(h);
    struct manifests *ms = xcalloc(1, sizeof *ms);
    char why[256];

    *ms = (struct manifests){.host = h, .clock = env->clock, .store = env->store};
    list_init(&ms->all);
    ms->parser = json_parser_new();
    timer_init(&ms->soon, on_soon);
    if (record_load(ms->store, &manifest_form, NULL, STR_NULL, on_loaded, ms, why) != BH_OK)
        log_warn(NULL, "%s: the commands that gateways announced before are not known", why);
    /* The store lists records by key; the merge needs them by their first announcement. */
    size_t n = 0;
    struct announced **all = xcalloc(map_count(&ms->by_id) + 1, sizeof(struct announced *));
    list_each (&ms->all, it, nxt)
        all[n++] = list_entry(it, struct announced, link);
    qsort(all, n, sizeof *all, by_age);
    for (size_t i = 0; i < n; i++)
        list_move(&all[i]->link, &ms->all);
    free(all);
    manifests_look(ms);
    return ms;
}

void manifests_close(struct manifests *ms)
{
    if (ms == NULL)
        return;
    timer_stop(ms->clock, &ms->soon);
    list_each (&ms->all, it, nxt)
        announced_free(ms, list_entry(it, struct announced, link));
    map_done(&ms->by_id);
    json_parser_free(ms->parser);
    free(ms);
}
