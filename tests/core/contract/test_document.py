from core.contract.figures import VersionFigures


def test_named_fields_of_a_document_are_written_alone_and_only_where_they_were_given() -> None:
    figures = VersionFigures.from_json(
        {"drift": 2, "update_norm": {"backbone": 1.5}, "of_a_later_version": 1}
    )
    assert figures.dump_named_fields_to_json(("drift", "adp")) == {"drift": 2}
    assert figures.dump_named_fields_to_json(("update_norm",)) == {"update_norm": {"backbone": 1.5}}
