/* prompts_text.c - questions in words: what may be asked, what a button carries, and how options
 * look where there are no buttons.  (prompts.h has the contract.) */
#include <stdio.h>
#include "platform/prompts_priv.h"

enum { ID_MAX = 32 };

static bool is_id(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' ||
              c == '.' || c == '-'))
            return false;
    }
    return s.n > 0 && s.n <= ID_MAX;
}

static bool is_twice(struct json options, size_t before, struct str id)
{
    struct json_iter it = {0};

    for (size_t i = 0; i < before && json_next(options, &it); i++)
        if (str_eq(json_str(it.value, "id"), id))
            return true;
    return false;
}

const char *prompt_wrong(const struct action *a)
{
    size_t n = json_count(a->options), i = 0;

    if (str_is_empty(str_trim(a->content)))
        return "the question is empty";
    if (!is_id(a->prompt_id))
        return "prompt_id must be 1 to 32 letters, digits, '_', '.' or '-'";
    if (json_type(a->options) != JSON_ARRAY || n == 0 || n > PROMPT_MAX_OPTIONS)
        return "a question has 1 to 25 options";
    for (struct json_iter it = {0}; json_next(a->options, &it); i++) {
        struct str id = json_str(it.value, "id");
        if (!is_id(id) || strlen(PROMPT_PREFIX) + a->prompt_id.n + 1 + id.n > PROMPT_TOKEN_MAX)
            return "an option's id must be 1 to 32 letters, digits, '_', '.' or '-'";
        if (is_twice(a->options, i, id))
            return "two options have the same id";
        if (str_is_empty(str_trim(json_str(it.value, "label"))))
            return "an option has no label";
    }
    return NULL;
}

bool prompt_is_token(struct str payload)
{
    struct str prompt;

    if (!str_starts(payload, STR(PROMPT_PREFIX)))
        return false;
    payload = str_skip(payload, strlen(PROMPT_PREFIX));
    return str_split(&payload, ':', &prompt) && is_id(prompt) && is_id(payload);
}

void prompt_token(char ret[PROMPT_TOKEN_MAX + 1], const struct prompt *q,
                  const struct prompt_option *o)
{
    snprintf(ret, PROMPT_TOKEN_MAX + 1, PROMPT_PREFIX "%s:%s", q->id, o->id);
}

void prompt_write_numbered(struct buf *out, struct str question, const struct prompt *q)
{
    buf_add_str(out, question);
    buf_add_z(out, "\n");
    for (size_t i = 0; i < q->n_options; i++)
        buf_printf(out, "\n%zu. %s", i + 1, q->options[i].label);
    buf_printf(out, "\n\nAnswer with a number (1 to %zu).", q->n_options);
}
