/* spawner_priv.h - what the server and its helper say to each other, a packet each. */
#pragma once
#include <stdint.h>
#include "net/spawner.h"

enum spawner_word {
    SPAWNER_RUN,    /* to the helper: @value is the command; three descriptors come along */
    SPAWNER_SIGNAL, /* to the helper: @value is the signal */
    SPAWNER_FAILED, /* from it: @value is an errno */
    SPAWNER_ENDED,  /* from it: @value is what waitpid() said */
};

struct spawner_packet { /* behind it: @n_more arguments and @n_env variables, a NUL after each */
    uint32_t word, id;
    int32_t value;
    uint16_t n_more, n_env;
};

struct spawner_commands {
    char ***argv; /* owned */
    unsigned n;
};

/* The helper's whole life; ends when @fd does. */
_Noreturn void spawner_help(int fd, const struct spawner_commands *c);
