/* event_copy.c - tables of the event's members, used for saving and loading. */
#include "core/event_copy.h"
#include "base/jw.h"
#include "base/mem.h"

#define TEXT(member) \
    { \
#member, offsetof(struct event, member) \
    }

static const struct {
    const char *name;
    size_t at;
} texts[] = {
    TEXT(platform),
    TEXT(bot),
    TEXT(filed_as),
    TEXT(route_key),
    TEXT(own_key),
    TEXT(former_key),
    TEXT(event_id),
    TEXT(text),
    TEXT(message_type),
    TEXT(message_id),
    TEXT(reply_to_message_id),
    TEXT(reply_to.text),
    TEXT(reply_to.author),
    TEXT(press.prompt_id),
    TEXT(press.option_id),
    TEXT(press.label),
    TEXT(press.message_id),
    TEXT(only_tenant),
    TEXT(only_instance),
    TEXT(chat_id),
    TEXT(chat_type),
    TEXT(chat_name),
    TEXT(chat_topic),
    TEXT(user_id),
    TEXT(user_name),
    TEXT(user_id_alt),
    TEXT(chat_id_alt),
    TEXT(user_display_name),
    TEXT(user_handle),
    TEXT(thread_id),
    TEXT(parent_chat_id),
    TEXT(scope_id),
    TEXT(prospective_thread_id),
    TEXT(auto_thread_name),
    TEXT(edit.text),
};

#define YES(member) \
    { \
#member, offsetof(struct event, member) \
    }

static const struct {
    const char *name;
    size_t at;
} flags[] = {
    YES(reply_to.is_own), YES(reply_to.set), YES(author_is_bot), YES(mentions_bot),
    YES(replies_to_bot),  YES(only_stops),   YES(context_error), YES(wants_context),
    YES(edit.set),        YES(edit.deletes), YES(edit.silent),
};

static void save_media(struct jw *w, const struct event_media *m)
{
    jw_obj(w);
    jw_kstr_opt(w, "url", m->url);
    jw_kstr_opt(w, "ref", m->ref);
    jw_kstr_opt(w, "id", m->id);
    jw_kstr_opt(w, "kind", m->kind);
    jw_kstr_opt(w, "type", m->type);
    jw_kstr_opt(w, "name", m->name);
    jw_kstr_opt(w, "caption", m->caption);
    jw_key(w, "size");
    jw_u64(w, m->size);
    jw_end_obj(w);
}

static void save_context(struct jw *w, const struct event *ev)
{
    jw_key(w, "context");
    jw_arr(w);
    for (size_t i = 0; i < ev->n_context; i++) {
        jw_obj(w);
        jw_kstr_opt(w, "text", ev->context[i].text);
        jw_kstr_opt(w, "message_id", ev->context[i].message_id);
        jw_kstr_opt(w, "user_id", ev->context[i].user_id);
        jw_kstr_opt(w, "user_name", ev->context[i].user_name);
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

void event_save(struct buf *out, const struct event *ev)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        jw_kstr_opt(&w, texts[i].name,
                    *(const struct str *)(const void *)((const char *)ev + texts[i].at));
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        if (*(const bool *)((const char *)ev + flags[i].at))
            jw_kbool(&w, flags[i].name, true);
    jw_key(&w, "media");
    jw_arr(&w);
    for (size_t i = 0; i < ev->n_media; i++)
        save_media(&w, &ev->media[i]);
    jw_end_arr(&w);
    if (ev->n_context > 0)
        save_context(&w, ev);
    jw_end_obj(&w);
}

static struct str load_text(struct json object, const char *key, struct arena *a)
{
    struct str s = json_str(object, key);

    return s.p != NULL ? arena_str(a, s) : STR_NULL;
}

static void load_media(struct json list, struct arena *a, struct event *ev)
{
    size_t n = json_count(list) < EVENT_MAX_MEDIA ? json_count(list) : EVENT_MAX_MEDIA;

    if (n == 0)
        return;
    struct event_media *items = arena_alloc(a, n * sizeof *items);
    ev->media = items;
    for (struct json_iter it = {0}; ev->n_media < n && json_next(list, &it); ev->n_media++) {
        struct event_media *m = &items[ev->n_media];
        *m = (struct event_media){.url = load_text(it.value, "url", a),
                                  .ref = load_text(it.value, "ref", a),
                                  .id = load_text(it.value, "id", a),
                                  .kind = load_text(it.value, "kind", a),
                                  .type = load_text(it.value, "type", a),
                                  .name = load_text(it.value, "name", a),
                                  .caption = load_text(it.value, "caption", a)};
        json_as_u64(json_get(it.value, "size"), &m->size);
    }
}

static void load_context(struct json list, struct arena *a, struct event *ev)
{
    size_t n = json_count(list) < EVENT_MAX_CONTEXT ? json_count(list) : EVENT_MAX_CONTEXT;

    if (n == 0)
        return;
    struct event_said *said = arena_alloc(a, n * sizeof *said);
    ev->context = said;
    for (struct json_iter it = {0}; ev->n_context < n && json_next(list, &it); ev->n_context++)
        said[ev->n_context] =
            (struct event_said){.text = load_text(it.value, "text", a),
                                .message_id = load_text(it.value, "message_id", a),
                                .user_id = load_text(it.value, "user_id", a),
                                .user_name = load_text(it.value, "user_name", a)};
}

bool event_load(struct json saved, struct arena *arena, struct event *ret)
{
    *ret = (struct event){0};
    if (!json_is_object(saved) || json_str(saved, "platform").n == 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        *(struct str *)(void *)((char *)ret + texts[i].at) = load_text(saved, texts[i].name, arena);
    for (size_t i = 0; i < ARRAY_LEN(flags); i++)
        *(bool *)((char *)ret + flags[i].at) = json_as_bool(json_get(saved, flags[i].name), false);
    load_media(json_get(saved, "media"), arena, ret);
    load_context(json_get(saved, "context"), arena, ret);
    return true;
}
