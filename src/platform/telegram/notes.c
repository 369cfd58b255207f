/* notes.c - one row per kind of content; the first that is there names the message.  Order matters
 * in one place: an animation also carries a document, and a venue also a location. */
#include "platform/telegram/notes.h"
#include <inttypes.h>
#include <stdio.h>
#include "base/buf.h"
#include "base/mem.h"

enum { MAX_DETAIL = 200 }; /* bytes of a name or a title that are repeated */

typedef void note_fn(struct buf *out, struct json v);

/* A stranger's words inside brackets of ours: one line, no brackets, not too long. */
static void add_detail(struct buf *out, const char *before, struct str s)
{
    size_t n = 0;

    if (s.n == 0)
        return;
    buf_add_z(out, before);
    while (n < s.n) {
        size_t one = utf8_seq_bytes(str_skip(s, n));
        if (one == 0 || n + one > MAX_DETAIL)
            break;
        char c = s.p[n];
        if ((unsigned char)c < ' ' || c == '[' || c == ']')
            buf_add_c(out, ' ');
        else
            buf_add(out, s.p + n, one);
        n += one;
    }
}

static void note_file(struct buf *out, struct json v)
{
    add_detail(out, ": ", json_str(v, "file_name"));
}

static void note_seconds(struct buf *out, struct json v)
{
    int64_t seconds;

    if (json_as_i64(json_get(v, "duration"), &seconds) && seconds >= 0)
        buf_printf(out, ", %" PRId64 " s", seconds);
}

static void note_audio(struct buf *out, struct json v)
{
    struct str title = json_str(v, "title");

    add_detail(out, ": ", title.n > 0 ? title : json_str(v, "file_name"));
    add_detail(out, title.n > 0 ? " by " : ", by ", json_str(v, "performer"));
    note_seconds(out, v);
}

static void note_emoji(struct buf *out, struct json v)
{
    int64_t value;

    add_detail(out, " ", json_str(v, "emoji"));
    if (json_as_i64(json_get(v, "value"), &value))
        buf_printf(out, " %" PRId64, value);
}

static void note_place(struct buf *out, struct json v)
{
    double lat, lon;

    if (json_as_f64(json_get(v, "latitude"), &lat) && json_as_f64(json_get(v, "longitude"), &lon) &&
        lat >= -90 && lat <= 90 && lon >= -180 && lon <= 180)
        buf_printf(out, ": %.6f, %.6f", lat, lon);
}

static void note_venue(struct buf *out, struct json v)
{
    add_detail(out, ": ", json_str(v, "title"));
    add_detail(out, ", ", json_str(v, "address"));
    note_place(out, json_get(v, "location"));
}

static void note_contact(struct buf *out, struct json v)
{
    add_detail(out, ": ", json_str(v, "first_name"));
    add_detail(out, " ", json_str(v, "last_name"));
    add_detail(out, ", ", json_str(v, "phone_number"));
}

static void note_poll(struct buf *out, struct json v)
{
    size_t n = 0;

    add_detail(out, ": ", json_str(v, "question"));
    for (struct json_iter it = {0}; n < 12 && json_next(json_get(v, "options"), &it); n++)
        add_detail(out, " / ", json_str(it.value, "text"));
}

static const struct {
    const char *key, *what, *type; /* type NULL: "text" */
    note_fn *detail;               /* NULL: the word says it all */
} notes[] = {
    {"photo", "photo", "photo", NULL},
    {"voice", "voice message", "voice", note_seconds},
    {"audio", "audio", "audio", note_audio},
    {"animation", "animation", "video", NULL},
    {"video", "video", "video", note_seconds},
    {"video_note", "video message", "video", note_seconds},
    {"sticker", "sticker", "sticker", note_emoji},
    {"document", "document", "document", note_file},
    {"venue", "place", "location", note_venue},
    {"location", "location", "location", note_place},
    {"contact", "contact", NULL, note_contact},
    {"poll", "poll", NULL, note_poll},
    {"dice", "dice", NULL, note_emoji},
    {"story", "story", NULL, NULL},
    {"paid_media", "paid media", NULL, NULL},
    {"game", "game", NULL, NULL},
};

struct str tg_note(struct arena *a, struct json message, struct str *ret_type)
{
    struct buf out = BUF_INIT;

    for (size_t i = 0; i < ARRAY_LEN(notes); i++) {
        struct json v = json_get(message, notes[i].key);
        if (json_type(v) != JSON_OBJECT && json_type(v) != JSON_ARRAY)
            continue;
        buf_printf(&out, "[%s", notes[i].what);
        if (notes[i].detail != NULL)
            notes[i].detail(&out, v);
        buf_add_c(&out, ']');
        if (notes[i].type != NULL)
            *ret_type = str_of(notes[i].type);
        struct str note = arena_str(a, buf_str(&out));
        buf_done(&out);
        return note;
    }
    return STR_NULL;
}

/* ---- files ---- */

static const struct {
    const char *key, *kind, *type; /* the type where Telegram says none */
} files[] = {
    {"voice", "voice", "audio/ogg"},      {"audio", "audio", "audio/mpeg"},
    {"animation", "video", "video/mp4"},  {"video", "video", "video/mp4"},
    {"video_note", "video", "video/mp4"}, {"sticker", "image", "image/webp"},
    {"document", "document", NULL},
};

/* A picture comes in several sizes, the largest last. */
static struct json largest(struct json sizes)
{
    struct json last = {0};

    for (struct json_iter it = {0}; json_next(sizes, &it);)
        last = it.value;
    return last;
}

static void read_file(struct json v, const char *kind, const char *type, struct event_media *ret)
{
    struct str said = json_str(v, "mime_type");

    *ret = (struct event_media){.ref = json_str(v, "file_id"),
                                .kind = str_of(kind),
                                .type = said.n > 0 ? said : str_of(type),
                                .name = json_str(v, "file_name")};
    if (!json_as_u64(json_get(v, "file_size"), &ret->size))
        ret->size = 0;
}

static bool find_file(struct json message, struct event_media *ret)
{
    struct json photo = largest(json_get(message, "photo"));

    if (json_is_object(photo)) {
        read_file(photo, "image", "image/jpeg", ret);
        return ret->ref.n > 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct json v = json_get(message, files[i].key);
        bool moves =
            json_as_bool(json_get(v, "is_animated"), false); /* a sticker nobody can show */
        if (!json_is_object(v) || moves)
            continue;
        read_file(v, files[i].kind, files[i].type, ret);
        return ret->ref.n > 0;
    }
    return false;
}

bool tg_file(struct json message, struct event_media *ret)
{
    if (!find_file(message, ret))
        return false;
    ret->caption = json_str(message, "caption");
    return true;
}
