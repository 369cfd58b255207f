/* erase.c - erases a tenant or a person from the platforms: waiting messages, open questions, and
 * adapters' memory.  (platform.h has the contract, store/erasure.h the engine.)  A platform with
 * records of its own has an eraser in its ops. */
#include "platform/platform.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "store/erasure.h"

static bool was_sent_to(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);

    struct str platform = erase_part(&key), bot = erase_part(&key), chat = json_str(doc, "chat");

    return str_eq(platform, s->platform) &&
           (str_eq(chat, s->user) || erasure_owns_chat(e, bot, chat));
}

/* The key is platform, bot, chat, question. */
static bool was_asked(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);
    struct str platform = erase_part(&key), bot = erase_part(&key), chat = erase_part(&key);

    return str_eq(platform, s->platform) &&
           (str_eq(chat, s->user) || erasure_owns_chat(e, bot, chat));
}

static const struct erase_records of_tenant[] = {
    {"outgoing", "outgoing", erase_by_value},
    {"prompt", "questions", erase_by_value},
    {0},
};
static const struct erase_records of_person[] = {
    {"outgoing", "outgoing", was_sent_to},
    {"prompt", "questions", was_asked},
    {0},
};

static void forget_chat(struct platform *p, struct str chat)
{
    if (p->ops->forget_chat != NULL)
        p->ops->forget_chat(p, chat);
    else if (p->ops->forget != NULL)
        p->ops->forget(p, chat);
}

/* Chats of a tenant are known where records are kept. */
static void forget_own_chat(void *ctx, struct str bot, struct str chat)
{
    const struct platform_erase *all = ctx;
    size_t i = 0;

    for (struct platform *p; (p = all->nth(all->ctx, i++)) != NULL;)
        if (p->ops->eraser != NULL && str_eq(str_of(p->bot), bot))
            forget_chat(p, chat);
}

struct forget_of { /* a person */
    const struct platform_erase *all;
    struct str platform;
};

static void forget_private_chat(void *ctx, struct str bot, struct str chat)
{
    const struct forget_of *of = ctx;
    size_t i = 0;

    for (struct platform *p; (p = of->all->nth(of->all->ctx, i++)) != NULL;) {
        if (!str_eq(str_of(p->ops->name), of->platform) || !str_eq(str_of(p->bot), bot))
            continue;
        forget_chat(p, chat);
        if (p->sender != NULL)
            sender_forget_chat(p->sender, chat);
        if (p->prompts != NULL)
            prompts_forget_chat(p->prompts, chat);
    }
}

static void forget_tenant(void *ctx, struct erasure *e)
{
    const struct platform_erase *all = ctx;
    const struct erase_subject *s = erasure_subject(e);
    size_t i = 0;

    if (!s->dry) {
        erasure_own_chats(e, forget_own_chat, ctx);
        for (struct platform *p; (p = all->nth(all->ctx, i++)) != NULL;)
            if (p->prompts != NULL)
                prompts_forget_tenant(p->prompts, s->tenant);
    }
    erasure_next(e);
}

static void forget_person(void *ctx, struct erasure *e)
{
    const struct platform_erase *all = ctx;
    const struct erase_subject *s = erasure_subject(e);
    size_t i = 0;

    for (struct platform *p; !s->dry && (p = all->nth(all->ctx, i++)) != NULL;) {
        if (!str_eq(str_of(p->ops->name), s->platform))
            continue;
        if (p->ops->forget != NULL)
            p->ops->forget(p, s->user);
        if (p->sender != NULL)
            sender_forget_chat(p->sender, s->user);
        if (p->prompts != NULL)
            prompts_forget_chat(p->prompts, s->user);
    }
    if (!s->dry)
        erasure_own_chats(e, forget_private_chat, &(struct forget_of){all, s->platform});
    erasure_next(e);
}

const struct eraser platforms_eraser = {.of_tenant = of_tenant,
                                        .of_person = of_person,
                                        .tenant = forget_tenant,
                                        .person = forget_person};
