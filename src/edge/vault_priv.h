/* vault_priv.h - the entries of the vault, shared by its two files. */
#pragma once
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "edge/vault.h"

#define VAULT_SWEEP_MS 5000

extern const struct record_form vault_form;

enum vault_name { VAULT_BY_KEY = 'k', VAULT_BY_PLACE = 'p', VAULT_BY_TENANT = 't' };

struct vault_chain { /* all entries with one name, oldest first */
    struct list handles;
    size_t n;
    char name[];
};
struct vault_handle {          /* one name of an entry */
    struct list link;          /* chain->handles */
    struct vault_chain *chain; /* borrowed; NULL: not in one */
    struct vault_entry *entry; /* borrowed */
};

struct vault_entry {
    struct list link; /* vault->entries, by age */
    uint64_t number;
    struct vault_handle names[VAULT_KEYS + 2]; /* its keys, its place, its tenant */
    char *record;           /* owned: tenant, kind and id; the key in the store */
    char *tenant, *kind;    /* owned */
    char *keys[VAULT_KEYS]; /* owned; NULL: none */
    char *place, *user;     /* owned; may be NULL */
    char *instances;        /* owned: names with 0x1f after each */
    char *sealed;           /* owned */
    int64_t until_ms;       /* wall */
    bool used, taken;
};

struct vault {
    struct vault_env env;
    struct list entries;
    struct map by_name;   /* struct vault_chain, owned */
    struct map by_record; /* struct vault_entry */
    struct map by_number; /* struct vault_entry */
    struct timer sweep;
    uint64_t next;
};

/* NULL: no entry has that name.  By tenant there is one chain, of no kind and no name. */
struct vault_chain *vault_find_chain(const struct vault *v, enum vault_name what, struct str tenant,
                                     struct str kind, struct str name);

void vault_entry_add(struct vault *v, struct vault_entry *e); /* @e is filled in */
void vault_entry_free(struct vault *v, struct vault_entry *e);
void vault_entry_save(struct vault *v, const struct vault_entry *e);
void vault_entry_drop(struct vault *v, struct vault_entry *e); /* here and on disk */
bool vault_entry_is_over(const struct vault *v, const struct vault_entry *e);
static inline struct str vault_number_key(const uint64_t *number) /* in by_number */
{
    return str_make(number, sizeof *number);
}
enum bh_err vault_load(struct vault *v, char *ret_why);
