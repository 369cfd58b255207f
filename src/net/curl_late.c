/* curl_late.c - filling the table.  The names are written out by the same list that declares the
 * members, so a function that is used but not listed does not compile. */
#include "net/curl_late.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"

static CURLcode load_then_init(long flags);

struct curl_late curl_late = {.curl_global_init_f = load_then_init};

static void fill(void *lib, const char *name, void *slot)
{
    void *at = dlsym(lib, name);

    if (at == NULL) {
        log_error(NULL, "libcurl.so.4 lacks %s: install libcurl4 7.85 or newer", name);
        abort();
    }
    memcpy(slot, &at, sizeof at); /* from an object pointer to a function pointer */
}

/* The list again, as strings: # does not expand the macros of curl_late.h. */
#define FILL(name) fill(lib, #name, &curl_late.name##_f);

static void load(void)
{
    void *lib = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

    if (lib == NULL) {
        log_error(NULL, "libcurl cannot be loaded: %s: install libcurl4", dlerror());
        abort();
    }
    CURL_LATE_EACH(FILL)
}

void curl_late_load(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
}

static CURLcode load_then_init(long flags)
{
    curl_late_load();
    return curl_global_init(flags);
}
