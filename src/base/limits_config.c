/* limits_config.c - the rows of limits.h as settings, and as a table for people. */
#include "base/config.h"
#include "base/limits.h"

#define WORD_PER_ADDRESS "address"
#define WORD_PER_VISITOR "visitor"
#define WORD_PER_CREDENTIAL "credential"
#define WORD_PER_INSTANCE "instance"
#define WORD_PER_TENANT "tenant"
#define WORD_PER_BOT "bot"

#define AT(NAME, member) offsetof(struct limit_settings, of[LIMIT_##NAME].member)
#define TYPE(unit) ((unit) == LIMIT_BYTES ? CFG_BYTES : CFG_COUNT)

static const struct config_key keys[] = {
#define KEYS(NAME, name, scope, unit, most_each, most_all, words, then, threat) \
    {"limits." name "_per_" WORD_##scope, TYPE(unit), CFG_RELOAD, AT(NAME, each), \
     .what = words " At it: " then ". 0 is no limit."}, \
        {"limits." name, TYPE(unit), CFG_RELOAD, AT(NAME, all), \
         .what = "The same, all together; 0 is no limit."},
    LIMITS(KEYS)
#undef KEYS
        {0},
};

const struct config_section limits_config = {.keys = keys,
                                             .size = sizeof(struct limit_settings),
                                             .defaults = &limit_defaults};

static void describe_bound(struct buf *out, enum limit_unit unit, uint64_t n)
{
    if (n == 0)
        buf_add_z(out, "none");
    else if (unit == LIMIT_BYTES && n % (1 << 20) == 0)
        buf_printf(out, "%llu MiB", (unsigned long long)n >> 20);
    else if (unit == LIMIT_BYTES && n % 1024 == 0)
        buf_printf(out, "%llu KiB", (unsigned long long)n >> 10);
    else
        buf_printf(out, "%llu", (unsigned long long)n);
}

void limits_describe(struct buf *out)
{
    buf_add_z(out, "| `limits.` | each | all | what is counted | at the limit | against |\n"
                   "|---|---|---|---|---|---|\n");
    for (int i = 0; i < LIMIT_N; i++) {
        const struct limit_row *r = &limit_rows[i];
        buf_printf(out, "| `%s` | ", r->name);
        describe_bound(out, r->unit, limit_defaults.of[i].each);
        buf_printf(out, " per %s | ", limit_scope_word(r->scope));
        describe_bound(out, r->unit, limit_defaults.of[i].all);
        buf_printf(out, " | %s | %s | %s |\n", r->what, r->then, r->threat);
    }
}
