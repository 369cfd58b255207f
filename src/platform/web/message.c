/* message.c - ids and messages as text: in the store, to the pages, back again. */
#include "base/json.h"
#include "base/jw.h"
#include "platform/web/web_priv.h"

void web_id_format(uint64_t id, char ret[WEB_ID_CHARS + 1])
{
    for (int i = WEB_ID_CHARS - 1; i >= 0; i--, id >>= 4)
        ret[i] = "0123456789abcdef"[id & 15];
    ret[WEB_ID_CHARS] = '\0';
}

bool web_id_parse(struct str text, uint64_t *ret_id)
{
    uint64_t id = 0;

    if (text.n != WEB_ID_CHARS)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c >= '0' && c <= '9')
            id = id << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            id = id << 4 | (uint64_t)(c - 'a' + 10);
        else
            return false;
    }
    *ret_id = id;
    return true;
}

static void write_id(struct jw *w, const char *key, uint64_t id)
{
    char text[WEB_ID_CHARS + 1];

    web_id_format(id, text);
    jw_kstr(w, key, str_make(text, WEB_ID_CHARS));
}

static void write_prompt(struct jw *w, const struct web_message *m)
{
    if (m->prompt.n > 0) {
        jw_key(w, "prompt");
        jw_raw(w, m->prompt);
        return;
    }
    if (!json_is_object(m->kept_prompt))
        return;
    jw_key(w, "prompt");
    jw_obj(w);
    for (struct json_iter it = {0}; json_next(m->kept_prompt, &it);) {
        if (str_eq(it.key, STR("chosen")) && m->chosen.p != NULL)
            continue;
        jw_key_str(w, it.key);
        jw_value(w, it.value);
    }
    jw_kstr_opt(w, "chosen", m->chosen);
    jw_end_obj(w);
}

static void write_files(struct jw *w, const struct web_message *m)
{
    if (m->files.n == 0 && json_type(m->kept_files) != JSON_ARRAY)
        return;
    jw_key(w, "files");
    if (m->files.n > 0)
        jw_raw(w, m->files);
    else
        jw_value(w, m->kept_files);
}

void web_message_write(struct buf *out, const struct web_message *m)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    write_id(&w, "id", m->id);
    write_id(&w, "rev", m->rev);
    jw_kstr(&w, "from", m->from_agent ? STR("agent") : STR("visitor"));
    if (m->is_stop)
        jw_kstr(&w, "kind", STR("stop"));
    jw_kstr(&w, "text", m->text);
    jw_ki64(&w, "at", m->at_ms);
    if (m->client_id.n > 0)
        jw_kstr(&w, "client_id", m->client_id);
    jw_kstr_opt(&w, "reply_to", m->reply_to);
    if (m->edited_ms != 0)
        jw_ki64(&w, "edited", m->edited_ms);
    write_files(&w, m);
    write_prompt(&w, m);
    jw_end_obj(&w);
}

bool web_message_read(struct web *w, struct str record, struct web_message *ret)
{
    struct json doc;
    struct web_message m = {0};

    if (!json_parse(w->json, record, &doc) || !web_id_parse(json_str(doc, "id"), &m.id) ||
        !web_id_parse(json_str(doc, "rev"), &m.rev))
        return false;
    m.from_agent = str_eq(json_str(doc, "from"), STR("agent"));
    m.is_stop = str_eq(json_str(doc, "kind"), STR("stop"));
    m.text = json_str(doc, "text");
    m.client_id = json_str(doc, "client_id");
    m.reply_to = json_str(doc, "reply_to");
    json_as_i64(json_get(doc, "at"), &m.at_ms);
    json_as_i64(json_get(doc, "edited"), &m.edited_ms);
    m.kept_files = json_get(doc, "files");
    m.kept_prompt = json_get(doc, "prompt");
    *ret = m;
    return true;
}
