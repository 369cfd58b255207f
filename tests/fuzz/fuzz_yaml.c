/* A configuration file that somebody else may have written: it is taken or refused with a sentence,
 * and what was taken differs in nothing from itself. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/config.h"
#include "cli/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_taken(const char *path, struct config *c)
{
    struct buf reload = BUF_INIT, restart = BUF_INIT, why = BUF_INIT;
    struct config *again;

    if (settings_load(path, &again, &why) != BH_OK)
        abort();
    config_diff(c, again, &reload, &restart);
    if (reload.n + restart.n > 0)
        abort();
    config_take_reloadable(c, again);
    config_free(again);
    buf_done(&reload);
    buf_done(&restart);
    buf_done(&why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    static char path[32];
    struct buf why = BUF_INIT;
    struct config *c = NULL;

    if (file < 0) {
        file = memfd_create("bellhop.yaml", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
    if (settings_load(path, &c, &why) == BH_OK) {
        check_taken(path, c);
        config_free(c);
    } else if (why.n == 0) {
        abort(); /* an operator must be told */
    }
    buf_done(&why);
    return 0;
}
