from pathlib import Path

import pytest


def test_each_version_is_measured_with_its_own_package_and_sides(tmp_path: Path, monkeypatch, capsys):
    import versions

    (tmp_path / "src" / "etude").mkdir(parents=True)
    asked: list[Path] = []

    def measure_once(bench, side, threads, on):
        asked.append(on.checkout)
        return {"status": "ok", "rate": 300.0 if on.checkout == tmp_path.resolve() else 600.0}

    monkeypatch.setattr(versions.runner, "measure_once", measure_once)
    assert versions.main([str(tmp_path), "collect-cartpole", "--repeats", "2"]) == 0
    here = versions.runner.HERE.parent
    assert asked == [here, tmp_path.resolve(), tmp_path.resolve(), here]
    assert "this 600, other 300, ratio 2.000" in capsys.readouterr().out


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path, capsys):
    import versions

    with pytest.raises(SystemExit):
        versions.main([str(tmp_path), "collect-cartpole"])
    assert "there is no src/etude in it" in capsys.readouterr().err
