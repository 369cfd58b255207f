/* erase.c - the chat page's records of a tenant or a person go: messages with their files, names.
 *
 * A message is its visitor's, and a visitor is a chat.  Of a tenant go the messages of the chats
 * that no instance of another tenant knows. */
#include "platform/platform.h"
#include "platform/web/web_priv.h"
#include "store/erasure.h"

/* Keys are bot, chat, ... */
static bool is_of_tenant(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    struct str bot = erase_part(&key), chat = erase_part(&key);

    return erasure_owns_chat(e, bot, chat);
}

static bool is_of_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);

    erase_part(&key);
    return str_eq(s->platform, STR("web")) && str_eq(erase_part(&key), s->user);
}

/* The files of a message go with it. */
static bool is_message_of_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct platform_erase *all = ctx;

    if (!is_of_person(ctx, e, key, doc))
        return false;
    for (struct json_iter it = {0}; json_next(json_get(doc, "files"), &it);)
        erasure_count(e, "media",
                      all->forget_file(all->ctx, json_str(it.value, "id"),
                                       erasure_subject(e)->dry));
    return true;
}

static const struct erase_records of_tenant[] = {
    {"web", "messages", is_of_tenant},
    {"web_once", NULL, is_of_tenant},
    {"web_name", NULL, is_of_tenant},
    {0},
};
static const struct erase_records of_person[] = {
    {"web", "messages", is_message_of_person},
    {"web_once", NULL, is_of_person},
    {"web_name", "names", is_of_person},
    {0},
};

static void tell_files(void *ctx, struct erasure *e)
{
    erasure_count(e, "media", 0); /* told also when there was none */
    erasure_next(e);
}

const struct eraser web_eraser = {.of_tenant = of_tenant,
                                  .of_person = of_person,
                                  .person = tell_files};
