/* files.c - files as the page knows them.  (web_priv.h has the calls.)
 *
 * A page uploads a file, is told what it is called, and names it in a message; a file that an agent
 * sends is named in the message that pages get.  What a visitor may read or name is told by a key:
 * a keyed hash of the chat and of all that is known of the file, so nothing has to be remembered.
 */
#include <stdio.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/web/web_priv.h"

void web_file_key(struct platform *p, struct str chat, const struct event_media *m, struct buf *out)
{
    struct web *w = container_of(p, struct web, base);
    const struct str parts[] = {STR("file"), chat, m->id, m->type, m->name};
    struct buf what = BUF_INIT;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buf_add_u64(&what, parts[i].n); /* so that no part can pass for two */
        buf_add_c(&what, ':');
        buf_add_str(&what, parts[i]);
    }
    buf_add_u64(&what, m->size);
    struct hash128 h = hash128(&w->visitor_key, buf_str(&what));
    buf_printf(out, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
    buf_done(&what);
}

static bool key_is_good(struct web *w, struct str chat, const struct event_media *m, struct str key)
{
    struct buf want = BUF_INIT;

    web_file_key(&w->base, chat, m, &want);
    bool good = key.n == want.n && ct_equal(key.p, want.p, key.n);
    buf_done(&want);
    return good;
}

bool web_files_read(struct web *w, struct str chat, struct json list, struct event_media *ret,
                    size_t *ret_n)
{
    size_t n = 0;

    if (json_count(list) > WEB_MAX_FILES)
        return false;
    for (struct json_iter it = {0}; json_next(list, &it); n++) {
        struct event_media *m = &ret[n];
        *m = (struct event_media){.id = json_str(it.value, "id"),
                                  .type = json_str(it.value, "type"),
                                  .name = json_str(it.value, "name"),
                                  .kind = json_str(it.value, "kind")};
        if (!json_as_u64(json_get(it.value, "size"), &m->size) || m->id.n == 0 ||
            !key_is_good(w, chat, m, json_str(it.value, "key")))
            return false;
    }
    *ret_n = n;
    return true;
}

void web_files_write(struct web *w, struct str chat, const struct event_media *m, size_t n,
                     struct buf *out)
{
    struct jw j = jw_begin(out);
    struct buf key = BUF_INIT;

    jw_arr(&j);
    for (size_t i = 0; i < n; i++) {
        buf_reset(&key);
        web_file_key(&w->base, chat, &m[i], &key);
        jw_obj(&j);
        jw_kstr(&j, "id", m[i].id);
        jw_kstr(&j, "key", buf_str(&key));
        jw_kstr(&j, "kind", m[i].kind);
        jw_kstr(&j, "type", m[i].type);
        jw_kstr(&j, "name", m[i].name.p != NULL ? m[i].name : STR(""));
        jw_ki64(&j, "size", (int64_t)m[i].size);
        jw_end_obj(&j);
    }
    jw_end_arr(&j);
    buf_done(&key);
}

struct str web_file_message_type(struct str kind)
{
    if (str_eq(kind, STR("image")))
        return STR("photo");
    static const char *const same[] = {"voice", "audio", "video"};
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        if (str_eq(kind, str_of(same[i])))
            return str_of(same[i]);
    return STR("document");
}
