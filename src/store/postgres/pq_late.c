/* pq_late.c - filling the table of pq_late.h, by the list that declares its members. */
#include "store/postgres/pq_late.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include "base/err.h"

struct pq_late pq_late;

static bool fill(void *lib, const char *name, void *slot, char *ret_why)
{
    void *at = dlsym(lib, name);

    if (at == NULL)
        return bh_why(ret_why, "libpq.so.5 lacks %s: install libpq5 14 or newer", name);
    memcpy(slot, &at, sizeof at); /* from an object pointer to a function pointer */
    return true;
}

#define FILL(name) &&fill(lib, #name, &late.name##_f, ret_why)

static bool load(char *ret_why)
{
    void *lib = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
    struct pq_late late;

    if (lib == NULL)
        return bh_why(ret_why, "PostgreSQL needs libpq (install libpq5): %.160s", dlerror());
    if (!(true PQ_LATE_EACH(FILL))) {
        dlclose(lib);
        return false;
    }
    pq_late = late;
    return true;
}

bool pq_late_load(char *ret_why)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;

    pthread_mutex_lock(&mutex);
    if (!loaded)
        loaded = load(ret_why);
    bool ok = loaded;
    pthread_mutex_unlock(&mutex);
    return ok;
}
