/* forms.c - the list of lists.  (forms.h has the contract.) */
#include "cli/forms.h"
#include <assert.h>
#include "base/mem.h"
#include "cli/cluster_dirs.h"
#include "cluster/node.h"
#include "dispatch/dispatch.h"
#include "edge/vault.h"
#include "media/media.h"
#include "platform/platform.h"
#include "relay/relay.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"

static size_t add(const struct record_form *ret[FORMS_MAX], size_t n,
                  const struct record_form *const *of)
{
    for (; of != NULL && *of != NULL; of++) {
        assert(n < FORMS_MAX - 1);
        ret[n++] = *of;
    }
    return n;
}

void forms_list(const struct record_form *ret[FORMS_MAX])
{
    const struct record_form *const *const own[] = {facts_records,      keys_records,
                                                    vault_records,      node_records,
                                                    media_records,      relay_records,
                                                    dispatch_records,   platform_records,
                                                    cluster_dir_records};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        n = add(ret, n, own[i]);
    for (size_t i = 0; platforms[i] != NULL; i++)
        n = add(ret, n, platforms[i]->records);
    ret[n] = NULL;
}
