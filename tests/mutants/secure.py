"""Protections of secrets and of other people's files: each mutant takes one away, and its killer must notice."""

from __future__ import annotations

from tests.mutants.killers import Mutant, alone

INSIDE, REDIRECTS = alone("test_inside.py"), alone("test_redirects.py")
CANARIES, LIMITS = alone("test_canaries.py"), alone("stores/test_call_limit.py")

SECURE_MUTANTS = (
    Mutant(
        "inside-store",
        "the last look at a path before a store is asked",
        "stores/world.py",
        (("        if path is not None and self.leads_out(path):\n            return refused(path)\n", ""),),
        INSIDE,
        "test_no_request_leaves_the_table_whoever_asks",
    ),
    Mutant(
        "inside-encoded",
        "the decoding of a path before it is judged",
        "stores/inside.py",
        (('    spelled = part if "=" in part else _decoded(part)\n', "    spelled = part\n"),),
        INSIDE,
        "test_no_request_leaves_the_table_whoever_asks",
    ),
    Mutant(
        "inside-iceberg",
        "the look at what Iceberg's metadata names",
        "iceberg/catalog/world.py",
        (("        return leads_astray(path, ", "        return False and leads_astray(path, "),),
        INSIDE,
        "test_an_iceberg_file_whose_name_climbs_is_neither_read_nor_rewritten",
    ),
    Mutant(
        "redirect-registry",
        "the drop of credentials on another origin",
        "cdc/connect/redirects.py",
        (("made is not None and origin(newurl) != origin(req.full_url)", "made is None"),),
        REDIRECTS,
        "test_the_registrys_password_stays_with_the_registry",
    ),
    Mutant(
        "redirect-catalog",
        "the guard of a REST catalog's session",
        "iceberg/catalog/rest.py",
        (("        guard(session)\n", ""),),
        REDIRECTS,
        "test_a_token_endpoint_that_redirects_elsewhere_gets_the_client_secret_alone",
    ),
    Mutant(
        "mask-causes",
        "the replacement of causes that name a secret",
        "errors.py",
        (("            hide_causes(error)\n            raise\n", "            raise\n"),),
        CANARIES,
        "test_errors_of_libraries_that_repeat_a_secret_are_masked_with_their_causes",
    ),
    Mutant(
        "limit-ended",
        "the end of a write whose time was used up by one answer",
        "stores/call_limit.py",
        (("    return isinstance(error, CallTimeoutError)\n", "    return False\n"),),
        LIMITS,
        "test_an_answer_that_drips_ends_with_its_call",
    ),
    Mutant(
        "limit-clients",
        "the bound of a process's clients",
        "stores/clients.py",
        (("for _ in range(len(self.found) - CLIENTS_MAX)]", "for _ in range(0)]"),),
        LIMITS,
        "test_clients_of_credentials_that_change_at_each_open_are_bounded",
    ),
)
