/* settings.c - `skills:` in the configuration. */
#include <stdio.h>
#include "base/config.h"
#include "skills/skills.h"

#define AT(member) offsetof(struct skills_settings, member)

static const struct config_key keys[] = {
    {"skills.kind", CFG_CHOICE, CFG_RESTART, AT(kind), "auto", "auto|sqlite|postgres|filesystem",
     .what =
         "Where skills are kept: `auto` where the store is, in `sqlite` (one file in `state_dir`) "
         "or `postgres`; `filesystem` is one readable file per skill."},
    {"skills.dir", CFG_TEXT, CFG_RESTART, AT(dir),
     .what = "Where those files are; `state_dir/skills` otherwise."},
    {"skills.approval.mode", CFG_CHOICE, CFG_RESTART, AT(approval_mode), "open", "open|secured",
     .what = "`secured`: a skill is Approved only with the operator's signature (`bellhop skill "
             "approve`)."},
    {"skills.approval.public_key", CFG_TEXT, CFG_RESTART, AT(approval_key),
     .what = "The operator's Ed25519 public key: a PEM file, or its text."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct skills_settings *s = settings;

    if (strcmp(s->approval_mode, "secured") == 0 && s->approval_key == NULL) {
        snprintf(ret_why, 256, "skills.approval: mode secured needs public_key");
        return false;
    }
    if (s->dir != NULL && strcmp(s->kind, "filesystem") != 0) {
        snprintf(ret_why, 256, "skills.dir goes with kind filesystem");
        return false;
    }
    return true;
}

const char *skills_kind(const struct skills_settings *s, bool shared)
{
    return strcmp(s->kind, "auto") != 0 ? s->kind : shared ? "postgres" : "sqlite";
}

const struct config_section skills_section = {.keys = keys,
                                              .size = sizeof(struct skills_settings),
                                              .check = check};
