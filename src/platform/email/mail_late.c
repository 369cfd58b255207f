/* mail_late.c - loads GMime and libpsl.  (mail_late.h says why so late.) */
#include "platform/email/mail_late.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct mail_late mail_late;

static bool fill(void *lib, const char *name, void *slot, char *ret_why)
{
    void *at = dlsym(lib, name);

    if (at == NULL)
        snprintf(ret_why, 256, "%s is missing: install libgmime-3.0-0 3.2 and libpsl5", name);
    else
        memcpy(slot, &at, sizeof at); /* from an object pointer to a function pointer */
    return at != NULL;
}

/* The lists again, as strings: # does not expand the macros of mail_late.h. */
#define FILL_GMIME(name) &&fill(gmime, #name, &late.name##_f, ret_why)
#define FILL_PSL(name) &&fill(psl, #name, &late.name##_f, ret_why)

/* The libraries stay loaded: GLib cannot be unloaded. */
static bool load(char *ret_why)
{
    void *gmime = dlopen("libgmime-3.0.so.0", RTLD_NOW | RTLD_LOCAL);
    void *psl = dlopen("libpsl.so.5", RTLD_NOW | RTLD_LOCAL);
    struct mail_late late;

    if (gmime == NULL || psl == NULL) {
        snprintf(ret_why, 256, "%.150s: install %s", dlerror(),
                 gmime == NULL ? "libgmime-3.0-0" : "libpsl5");
        return false;
    }
    if (!(true MAIL_LATE_GMIME(FILL_GMIME) MAIL_LATE_PSL(FILL_PSL)))
        return false;
    mail_late = late;
    g_mime_init();
    return true;
}

bool mail_late_load(char *ret_why)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;
    bool ok;

    pthread_mutex_lock(&mutex);
    if (!loaded)
        loaded = load(ret_why);
    ok = loaded;
    pthread_mutex_unlock(&mutex);
    return ok;
}
