/* curl_late.c - fills the table.  The same list declares the members and names the functions, so a
 * function that is used but not listed does not build. */
#include "net/curl_late.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include "base/log.h"

static CURLcode load_then_init(long flags);

struct curl_late curl_late = {.curl_global_init_f = load_then_init};

static bool fill(void *lib, const char *name, void *slot)
{
    void *at = dlsym(lib, name);

    if (at == NULL) {
        log_error(NULL, "libcurl.so.4 lacks %s: install libcurl4 7.85 or newer", name);
        return false;
    }
    memcpy(slot, &at, sizeof at); /* from an object pointer to a function pointer */
    return true;
}

/* The list again, as strings: # does not expand the macros of curl_late.h. */
#define FILL(name) &&fill(lib, #name, &late.name##_f)

static bool load(void)
{
    void *lib = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    struct curl_late late;

    if (lib == NULL) {
        log_error(
            NULL,
            "libcurl cannot be loaded: %s (install libcurl4, or raise the limit of open files)",
            dlerror());
        return false;
    }
    if (!(true CURL_LATE_EACH(FILL))) {
        dlclose(lib);
        return false;
    }
    curl_late = late;
    return true;
}

/* Fills the table, once, from any thread.  False, with a sentence in the log, when libcurl cannot
 * be loaded now: not installed, or no descriptor left; the next call tries again. */
static bool load_once(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;
    bool ok;

    pthread_mutex_lock(&mutex);
    if (!loaded)
        loaded = load();
    ok = loaded;
    pthread_mutex_unlock(&mutex);
    return ok;
}

static CURLcode load_then_init(long flags)
{
    return load_once() ? curl_global_init(flags) : CURLE_FAILED_INIT;
}
