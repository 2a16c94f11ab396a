"""Bugs in what is stored: sinks and their markers, retention and cleanup, manifests and paths."""

from tests.mutants.bug import Area, Bug

_SPARK = "tests/spark/test_sinks.py::test"
_TARGETS = "tests/behaviours/test_targets.py::test"
_TABLES = "tests/unit/spark/test_table_sinks.py::test"
_RULES = "tests/unit/spark/test_delta_rules.py::test"
_S3 = "tests/behaviours/test_s3_targets.py::test"
_INVARIANTS = "tests/behaviours/test_invariants.py::test"
_SINKS = "airflow_provider_ckpt/spark/sinks"
_RETENTION = "airflow_provider_ckpt/protocol/retention.py"
_CLEANUP = "airflow_provider_ckpt/coordinator/cleanup.py"
_BACK = "tests/spark/test_sinks.py::test_a_restore_behind_what_is_published_rolls_back_or_is_refused"

SINKS = (
    Bug(
        name="the marker of files has the number of the attempt",
        area=Area.SINKS,
        file=f"{_SINKS}/files.py",
        text="self._log(publication.name).add(publication.ref.id, document)",
        replacement="self._log(publication.name).add(publication.attempt, document)",
        tests=(f"{_SPARK}_a_sink_that_fails_for_long_keeps_the_checkpoint_committing_and_nothing_else",),
    ),
    Bug(
        name="the marker of a Delta table is read as the number of the attempt",
        area=Area.SINKS,
        file=f"{_SINKS}/delta.py",
        text="committed=_checkpoint(table, name) or None,",
        replacement="committed=_attempt(table, name) or None,",
        tests=(_BACK,),
    ),
    Bug(
        name="the marker of an Iceberg table is read as the number of the attempt",
        area=Area.SINKS,
        file=f"{_SINKS}/iceberg.py",
        text="committed=self.checkpoint or None",
        replacement="committed=self.attempt or None",
        tests=(_BACK,),
    ),
    Bug(
        name="the marker of a PostgreSQL table is read as the number of the attempt",
        area=Area.SINKS,
        file=f"{_SINKS}/postgres_tables.py",
        text="committed=found[0] or None",
        replacement="committed=found[1] or None",
        tests=(_BACK,),
    ),
    Bug(
        name="an attempt that a target knows to be replaced may still publish",
        area=Area.SINKS,
        file=f"{_SINKS}/base.py",
        text="    if attempt < newest:\n",
        replacement="    if attempt + 1 < newest:\n",
        tests=("tests/unit/spark/test_sinks.py::test_a_target_that_knows_a_newer_attempt_refuses_an_older_one",),
    ),
    Bug(
        name="a commit does not look where its target stands",
        area=Area.SINKS,
        file=f"{_SINKS}/base.py",
        text="    if (marker.committed or 0) != (publication.after or 0):\n",
        replacement="    if publication.after is None and marker.committed:\n",
        tests=(f"{_TARGETS}_a_commit_that_finds_its_target_elsewhere_stays_open_and_says_how_it_ends",),
    ),
    Bug(
        name="PostgreSQL commits without asking where its table stands",
        area=Area.SINKS,
        file=f"{_SINKS}/postgres.py",
        text="            if must_commit(publication, self._tables.lock_marker(cursor, name)):\n",
        replacement="            if (self._tables.lock_marker(cursor, name).committed or 0) < publication.ref.id:\n",
        tests=("tests/behaviours/test_postgres_sink.py::test_a_commit_continues_what_its_table_has_or_is_refused",),
    ),
    Bug(
        name="a rebuild opens a commit again that lies on a branch left behind",
        area=Area.SINKS,
        file="airflow_provider_ckpt/metastore/recovered.py",
        text="is_open = is_new and fork is None and each.manifest is newest",
        replacement="is_open = is_new and each.manifest is newest",
        tests=(f"{_TARGETS}_a_roll_back_and_then_a_lost_metastore_lose_no_row",),
    ),
    Bug(
        name="a sink that has staged nothing must commit",
        area=Area.SINKS,
        file="airflow_provider_ckpt/metastore/checkpoints.py",
        text='SinkStatus.NOTHING if has_nothing(ack["staged"]) else SinkStatus.PENDING',
        replacement="SinkStatus.PENDING",
        tests=(f"{_TARGETS}_a_query_that_has_done_nothing_yet_holds_nobody_up",),
    ),
    Bug(
        name="the library tries a commit to an Iceberg table again by itself",
        area=Area.SINKS,
        file=f"{_SINKS}/iceberg.py",
        text="        handle = _without_retries(table)\n",
        replacement="        handle = table\n",
        tests=(
            f"{_TABLES}_a_commit_to_an_iceberg_table_that_has_changed_is_not_tried_again_by_the_library",
            f"{_TABLES}_an_iceberg_table_that_others_write_to_keeps_its_own_retries",
        ),
    ),
    Bug(
        name="a Delta table with a feature that nobody here writes is written to",
        area=Area.SINKS,
        file=f"{_SINKS}/delta_rules.py",
        text="    for feature in sorted(features - _SAFE):\n",
        replacement="    for feature in sorted(features & _SAFE & set()):\n",
        tests=(f"{_RULES}_what_is_not_enforced_is_refused_by_name_and_nothing_is_staged",),
    ),
    Bug(
        name="the notes of files that are committed are folded while the newest of them is among them",
        area=Area.SINKS,
        file=f"{_SINKS}/files_log.py",
        text="for span, group in spans if span < current]",
        replacement="for span, group in spans if span <= current]",
        tests=(f"{_TABLES}_notes_of_committed_files_are_folded_and_a_crash_anywhere_loses_none",),
    ),
    Bug(
        name="what a task has sent to S3 twice stays there",
        area=Area.SINKS,
        file=f"{_SINKS}/s3_landing.py",
        text="        self._abort({file.name for file in files})\n",
        replacement="",
        tests=(f"{_S3}_an_upload_of_a_task_that_ran_twice_is_aborted_with_the_commit",),
    ),
    Bug(
        name="the doctor does not try to overwrite",
        area=Area.SINKS,
        file="airflow_provider_ckpt/cli/commands/doctor.py",
        text="        _overwrite(storage, path)\n",
        replacement="",
        tests=(f"{_S3}_the_doctor_fails_a_server_that_ignores_if_none_match",),
    ),
    Bug(
        name="a target that is further than the metastore goes unnoticed",
        area=Area.SINKS,
        file=f"{_SINKS}/recovering.py",
        text=".next_checkpoint:\n",
        replacement=".next_checkpoint + 10_000:\n",
        tests=(f"{_TARGETS}_a_restored_backup_of_the_metastore_is_noticed_and_a_rebuild_leads_out",),
    ),
)

RETENTION = (
    Bug(
        name="a corrupt checkpoint counts as the newest one",
        area=Area.RETENTION,
        file=_RETENTION,
        text="if checkpoint.is_on_timeline and not checkpoint.is_corrupt]",
        replacement="if checkpoint.is_on_timeline]",
        tests=("tests/unit/test_retention.py::test_a_corrupt_checkpoint_is_not_the_newest_and_takes_no_place",),
    ),
    Bug(
        name="a savepoint takes a place among the last",
        area=Area.RETENTION,
        file=_RETENTION,
        text="if not (checkpoint.is_savepoint or checkpoint.is_corrupt)]",
        replacement="if not checkpoint.is_corrupt]",
        tests=("tests/unit/test_retention.py::test_a_savepoint_takes_no_place_among_the_last",),
    ),
    Bug(
        name="hours and days are those of whoever wrote the time",
        area=Area.RETENTION,
        file=_RETENTION,
        text="checkpoint.ended_at.astimezone(UTC).strftime(span)",
        replacement="checkpoint.ended_at.strftime(span)",
        tests=("tests/unit/test_retention.py::test_hours_and_days_are_those_of_utc",),
    ),
    Bug(
        name="a pin does not keep a checkpoint",
        area=Area.RETENTION,
        file="airflow_provider_ckpt/coordinator/survey.py",
        text="is_pinned=each.ref.id in holdings.pinned,",
        replacement="is_pinned=each.ref in holdings.pinned,",
        tests=(f"{_INVARIANTS}_invariant_11_cleanup_honours_pins_savepoints_restores_newest_and_validated",),
    ),
    Bug(
        name="a checkpoint is forgotten while files of it are left",
        area=Area.RETENTION,
        file=_CLEANUP,
        text=(
            "left = set(self._failed) | "
            "{each.path for each in self._context.store.files.condemned(self._lease.pipeline)}"
        ),
        replacement="left: set[str] = set()",
        tests=(f"{_INVARIANTS}_invariant_12_a_file_that_will_not_go_is_reported_retried_and_stops_nothing_else",),
    ),
    Bug(
        name="a file that nobody can explain is deleted at once",
        area=Area.RETENTION,
        file=_CLEANUP,
        text="after=holdings.pipeline.settings.quarantine)",
        replacement="after=timedelta(0))",
        tests=("tests/behaviours/test_cli.py::test_strange_and_missing_files_are_reported",),
    ),
    Bug(
        name="a cleanup takes the checkpoint that the current attempt starts from",
        area=Area.RETENTION,
        file="airflow_provider_ckpt/coordinator/survey.py",
        text="protected=inventory.bases | _start_of(inventory),",
        replacement="protected=inventory.bases,",
        tests=("tests/behaviours/test_invariants.py::test_invariant_11_nobody_can_wish_away_what_is_needed",),
    ),
)

MANIFEST = (
    Bug(
        name="verify compares a digest with itself",
        area=Area.MANIFEST,
        file="airflow_provider_ckpt/coordinator/verify.py",
        text="    if found.sha256 != file.sha256:\n",
        replacement="    if file.sha256 != file.sha256:\n",
        tests=("tests/behaviours/test_verify.py::test_damage_is_found_by_verify_and_refused_by_restore_by_name",),
    ),
    Bug(
        name="a manifest may name one path with two contents",
        area=Area.MANIFEST,
        file="airflow_provider_ckpt/protocol/manifest.py",
        text="(other.size, other.sha256, bool(other.members)) != (file.size, file.sha256, bool(file.members))",
        replacement="(other.size, bool(other.members)) != (file.size, bool(file.members))",
        tests=("tests/unit/test_manifest.py::test_one_path_can_not_have_two_contents",),
    ),
    Bug(
        name="an unreachable storage is a verdict",
        area=Area.MANIFEST,
        file="airflow_provider_ckpt/coordinator/verify.py",
        text="    except NotFound:\n",
        replacement="    except Exception:\n",
        tests=("tests/behaviours/test_verify.py::test_an_unreachable_storage_is_no_verdict",),
    ),
)

PATHS = (
    Bug(
        name="a stored path may climb out of its root",
        area=Area.PATHS,
        file="airflow_provider_ckpt/protocol/paths.py",
        text='_NOWHERE = frozenset({"", ".", ".."})',
        replacement='_NOWHERE = frozenset({"", "."})',
        tests=(
            "tests/behaviours/test_verify.py::test_a_manifest_that_names_a_path_outside_the_root_is_refused_by_name",
        ),
    ),
    Bug(
        name="the name of a pipeline is looked at from its beginning only",
        area=Area.PATHS,
        file="airflow_provider_ckpt/protocol/paths.py",
        text="if not _NAME.fullmatch(name):",
        replacement="if not _NAME.match(name):",
        tests=("tests/unit/test_paths.py::test_anything_else_is_misused_and_the_error_says_what_is_allowed",),
    ),
    Bug(
        name="a staged file may lie outside of its folder",
        area=Area.PATHS,
        file=f"{_SINKS}/landing.py",
        text="            return StagedFile(name=check_path(name), size=size)\n",
        replacement="            return StagedFile(name=name, size=size)\n",
        tests=("tests/unit/spark/test_sinks.py::test_a_document_names_nothing_outside_of_its_folder",),
    ),
)
