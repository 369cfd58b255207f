/* event_part.c - finds, changes or removes one message of a frame that is already written. (event.h
 * has the contract.)
 *
 * The frame of a burst has the texts of its messages joined, so message_parts says how long each of
 * them is. */
#include "base/jw.h"
#include "core/event.h"

void event_write_part(struct jw *w, uint64_t bytes, uint64_t files)
{
    jw_obj(w);
    jw_ki64(w, "bytes", (int64_t)bytes);
    jw_ki64(w, "files", (int64_t)files);
    jw_end_obj(w);
}

bool event_frame_is_burst(struct str frame)
{
    /* Quotes inside of strings are escaped, so no user's text can contain the key. */
    return frame.n > 0 &&
           memmem(frame.p, frame.n, EVENT_MESSAGE_IDS, sizeof EVENT_MESSAGE_IDS - 1) != NULL;
}

bool event_may_change(const struct event *edit, struct str author)
{
    return edit->edit.deletes || str_is_empty(edit->user_id) || str_is_empty(author) ||
           str_eq(edit->user_id, author);
}

struct burst_parts { /* read from a frame */
    struct {
        struct str id, text;
        uint64_t files;
    } parts[EVENT_MAX_PARTS];
    size_t n;
    bool spoken;     /* a part so far has a text */
    struct str rest; /* of the text: notes about files */
};

static bool read_part(struct burst_parts *b, struct json id, struct json part, struct str *text)
{
    uint64_t bytes = 0;

    b->parts[b->n].id = json_as_str(id);
    if (!json_as_u64(json_get(part, "bytes"), &bytes) ||
        !json_as_u64(json_get(part, "files"), &b->parts[b->n].files))
        return false;
    if (bytes > 0 && b->spoken && text->n > 0)
        *text = str_skip(*text, 1); /* the newline */
    if (bytes > text->n)
        return false;
    b->parts[b->n++].text = str_make(text->p, bytes);
    *text = str_skip(*text, bytes);
    b->spoken |= bytes > 0;
    return true;
}

static bool read_parts(struct json event, struct burst_parts *b)
{
    struct json ids = json_get(event, "message_ids"), parts = json_get(event, "message_parts");
    struct str text = json_str(event, "text");
    struct json_iter id = {0}, part = {0};

    *b = (struct burst_parts){0};
    while (json_next(ids, &id))
        if (b->n == EVENT_MAX_PARTS || !json_next(parts, &part) ||
            !read_part(b, id.value, part.value, &text))
            return false;
    b->rest = text;
    return b->n > 0;
}

static void copy_list(struct jw *w, struct json list, uint64_t from, uint64_t skip)
{
    uint64_t at = 0;

    jw_arr(w);
    for (struct json_iter it = {0}; json_next(list, &it); at++)
        if (at < from || at >= from + skip)
            jw_value(w, it.value);
    jw_end_arr(w);
}

static void put_joined(struct jw *w, const struct burst_parts *b)
{
    struct buf text = BUF_INIT;

    for (size_t i = 0; i < b->n; i++) {
        if (b->parts[i].text.n > 0 && text.n > 0)
            buf_add_c(&text, '\n');
        buf_add_str(&text, b->parts[i].text);
    }
    buf_add_str(&text, text.n == 0 ? str_trim(b->rest) : b->rest);
    jw_str(w, buf_str(&text));
    buf_done(&text);
}

static void copy_source(struct jw *w, struct json source, struct str message_id)
{
    jw_obj(w);
    for (struct json_iter it = {0}; json_next(source, &it);) {
        jw_key_str(w, it.key);
        if (str_eq(it.key, STR("message_id")))
            jw_str(w, message_id);
        else
            jw_value(w, it.value);
    }
    jw_end_obj(w);
}

/* Writes the event with the parts @b, and without @skip files from @from on. */
static void copy_burst(struct jw *w, struct json event, const struct burst_parts *b, uint64_t from,
                       uint64_t skip)
{
    jw_obj(w);
    for (struct json_iter it = {0}; json_next(event, &it);) {
        jw_key_str(w, it.key);
        if (str_eq(it.key, STR("text"))) {
            put_joined(w, b);
        } else if (str_eq(it.key, STR("message_id"))) {
            jw_str(w, b->parts[0].id);
        } else if (str_eq(it.key, STR("source"))) {
            copy_source(w, it.value, b->parts[0].id);
        } else if (str_starts(it.key, STR("media"))) {
            copy_list(w, it.value, from, skip);
        } else if (str_eq(it.key, STR("message_ids"))) {
            jw_arr(w);
            for (size_t i = 0; i < b->n; i++)
                jw_str(w, b->parts[i].id);
            jw_end_arr(w);
        } else if (str_eq(it.key, STR("message_parts"))) {
            jw_arr(w);
            for (size_t i = 0; i < b->n; i++)
                event_write_part(w, b->parts[i].text.n, b->parts[i].files);
            jw_end_arr(w);
        } else {
            jw_value(w, it.value);
        }
    }
    jw_end_obj(w);
}

enum event_part_change event_change_part(struct buf *out, struct json_parser *parser,
                                         struct str frame, const struct event *edit)
{
    struct burst_parts b;
    uint64_t from = 0, skip = 0;
    struct json doc;
    size_t at = 0;

    if (!json_parse(parser, frame, &doc) || !json_is_object(json_get(doc, "event")))
        return EVENT_PART_UNKNOWN;
    struct json event = json_get(doc, "event"), source = json_get(event, "source");
    if (!event_may_change(edit, json_str(source, "user_id")) ||
        !str_eq(json_str(source, "chat_id"), edit->chat_id))
        return EVENT_PART_UNKNOWN;
    if (json_type(json_get(event, "message_ids")) == JSON_ABSENT) {
        b = (struct burst_parts){.n = 1}; /* one message, which the caller has found */
        b.parts[0].id = json_str(event, "message_id");
        b.parts[0].text = json_str(event, "text");
    } else {
        if (!read_parts(event, &b))
            return EVENT_PART_UNKNOWN;
        for (; at < b.n && !str_eq(b.parts[at].id, edit->message_id); at++)
            from += b.parts[at].files;
        if (at == b.n)
            return EVENT_PART_UNKNOWN;
    }
    if (edit->edit.deletes && b.n == 1)
        return EVENT_PART_LAST;
    if (edit->edit.deletes) {
        skip = b.parts[at].files;
        memmove(&b.parts[at], &b.parts[at + 1], (--b.n - at) * sizeof b.parts[0]);
    } else {
        b.parts[at].text = edit->edit.text;
    }
    struct jw w = jw_begin(out);
    jw_obj(&w);
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        jw_key_str(&w, it.key);
        if (str_eq(it.key, STR("event")))
            copy_burst(&w, it.value, &b, from, skip);
        else
            jw_value(&w, it.value);
    }
    jw_end_obj(&w);
    buf_add_c(out, '\n');
    return buf_failed(out) ? EVENT_PART_UNKNOWN : EVENT_PART_CHANGED;
}
